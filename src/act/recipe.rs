//! How a container is made again: the request that it was created with, in its encoded form; the same request with another
//! attempt out. Nothing here is decoded, so that no field is lost that this version does not know.

mod json;
mod messages;
pub(crate) mod rebuilt;
mod store;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};

pub(crate) use self::store::RecipeStore;
use crate::proto::trim::{
    Malformed,
    fields::{Field, put},
};

/// Where a CreateContainerRequest contains the metadata of the container: `config`, and there `metadata`.
const METADATA: &[u32] = &[2, 1];

/// The number of the attempt in a container's metadata.
const ATTEMPT: u32 = 2;

/// A whole CreateContainerRequest in its encoded form. It may contain secrets, so `Debug` does not show it. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Recipe(Arc<[u8]>);

impl Recipe {
    /// The request that makes the same container as this attempt. Only `config.metadata.attempt` differs, and the lengths
    /// of the two messages around it: all other bytes are the same, in the same order, whether or not their fields are
    /// known. A message that comes more than once is merged by its reader, so that each gets the attempt.
    ///
    /// # Errors
    /// The request is malformed, or has no metadata.
    pub(crate) fn again(&self, attempt: u32) -> Result<Bytes, Malformed> {
        let mut request = Vec::with_capacity(self.0.len() + 16);
        if copy(&self.0, METADATA, attempt, &mut request)? { Ok(request.into()) } else { Err(Malformed) }
    }
}

impl From<Arc<[u8]>> for Recipe {
    fn from(request: Arc<[u8]>) -> Self {
        Self(request)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({} bytes)", self.0.len())
    }
}

/// Copies a message, with another attempt in the metadata at this path. Returns whether there was any metadata.
fn copy(mut message: &[u8], path: &[u32], attempt: u32, out: &mut Vec<u8>) -> Result<bool, Malformed> {
    let Some((&next, path)) = path.split_first() else {
        return copy_metadata(message, attempt, out).map(|()| true);
    };
    let mut is_found = false;
    while let Some(field) = Field::next(&mut message)? {
        if field.tag == next {
            let mut inner = Vec::new();
            is_found |= copy(field.payload.ok_or(Malformed)?, path, attempt, &mut inner)?;
            put(out, next, &inner);
        } else {
            out.extend_from_slice(field.bytes);
        }
    }
    Ok(is_found)
}

fn copy_metadata(mut metadata: &[u8], attempt: u32, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut is_replaced = false;
    while let Some(field) = Field::next(&mut metadata)? {
        if field.tag == ATTEMPT {
            put_attempt(attempt, out);
            is_replaced = true;
        } else {
            out.extend_from_slice(field.bytes);
        }
    }
    // The first attempt has the number 0, which is not sent.
    if !is_replaced {
        put_attempt(attempt, out);
    }
    Ok(())
}

fn put_attempt(attempt: u32, out: &mut Vec<u8>) {
    encode_key(ATTEMPT, WireType::Varint, out);
    encode_varint(attempt.into(), out);
}

#[cfg(test)]
mod tests;
