//! Writes an answer piece by piece: what it is made of in, JSON out, of which only the next piece exists.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::{Stream, StreamExt};
use serde::Serialize;

use super::room::Held;

/// 32 KiB: a piece ends with the part that reaches it.
pub(super) const PIECE: usize = 32 << 10;

/// A body of these parts. Its room is given back when the last part is on its way to the client.
pub(super) fn body(parts: impl Iterator<Item = Vec<u8>> + Send + 'static, held: Held) -> Body {
    let mut parts = parts.peekable();
    let first = piece(&mut parts);
    // What is whole has a length, and holds nothing else.
    if parts.peek().is_none() {
        return Body::from(first);
    }
    let pieces = stream(std::iter::once(first).chain(parts), held);
    Body::from_stream(pieces.map(Ok::<_, Infallible>))
}

/// The same, to be followed by something else.
pub(super) fn stream(
    parts: impl Iterator<Item = Vec<u8>> + Send + 'static,
    held: Held,
) -> impl Stream<Item = Bytes> + Send + 'static {
    held.taken(0);
    futures_util::stream::unfold((parts, held), async |(mut parts, held)| {
        let piece = piece(&mut parts);
        held.taken(piece.len());
        (!piece.is_empty()).then(|| (Bytes::from(piece), (parts, held)))
    })
}

/// The next parts, until they are a piece; empty at the end.
pub(super) fn piece(parts: &mut impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut piece = parts.next().unwrap_or_default();
    while piece.len() < PIECE
        && let Some(part) = parts.next()
    {
        piece.extend(part);
    }
    piece
}

/// A JSON array, element by element.
pub(super) fn array<T: Serialize>(elements: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<u8>> {
    let elements = elements.enumerate().map(|(at, element)| {
        let mut part = if at == 0 { Vec::new() } else { b",".to_vec() };
        part.extend(json(&element));
        part
    });
    text("[").chain(elements).chain(text("]"))
}

/// Text as it is.
pub(super) fn text(text: &'static str) -> impl Iterator<Item = Vec<u8>> {
    std::iter::once(text.as_bytes().to_vec())
}

/// A long text, piece by piece.
pub(super) fn chunks(text: String) -> impl Iterator<Item = Vec<u8>> {
    let text = Bytes::from(text);
    (0..text.len()).step_by(PIECE).map(move |at| text[at..text.len().min(at + PIECE)].to_vec())
}

/// A view as JSON.
pub(super) fn json(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).expect("views are maps with text keys, which always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_whole_in_pieces() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE] {
            let text = "ä".repeat(length);
            let parts: Vec<_> = chunks(text.clone()).collect();
            assert!(parts.iter().all(|part| (1..=PIECE).contains(&part.len())));
            assert_eq!(parts.concat(), text.as_bytes());
        }
    }

    #[test]
    fn an_array_is_that_of_serde_in_pieces_that_are_not_much_longer_than_they_must_be() {
        for (count, length) in [(0, 0), (1, 1), (3, 10), (1_000, 100), (5, 100_000)] {
            let elements = vec!["\u{1}".repeat(length); count];
            let mut parts = array(elements.iter());
            let pieces: Vec<_> =
                std::iter::from_fn(|| Some(piece(&mut parts)).filter(|piece| !piece.is_empty())).collect();
            assert_eq!(pieces.concat(), serde_json::to_vec(&elements).unwrap());
            assert!(pieces.iter().all(|piece| piece.len() < PIECE + 6 * length + 4));
            assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() >= PIECE));
        }
    }
}
