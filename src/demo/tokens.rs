//! The commands that wait for their clients at the streaming server: a request in, a token out, and the request again for
//! its token, once. Never reads a clock.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use prost::Message as _;
use tonic::Status;

use super::ids;
use crate::proto::cri;

/// 1,000 tokens at a time, as containerd has it: the next Exec is answered ResourceExhausted.
const MAX_WAITING: usize = 1000;

/// 1 min, as containerd has it: a token that was not used until then is unknown.
const LIFE: Duration = Duration::from_secs(60);

/// 128 KiB of a request, which is as long as Linux lets one argument be: a longer one is answered InvalidArgument.
const MAX_REQUEST: usize = 128 << 10;

/// The tokens that were given out and not used. By a hash with keys of its own, so that the time of a search says
/// nothing about them.
#[derive(Default)]
pub(super) struct Tokens(HashMap<String, (Instant, cri::ExecRequest)>);

impl Tokens {
    /// Keeps a request, and returns its token.
    ///
    /// # Errors
    /// InvalidArgument if the request is too long, ResourceExhausted if too many wait.
    pub(super) fn add(&mut self, request: cri::ExecRequest, now: Instant) -> Result<String, Status> {
        if request.encoded_len() > MAX_REQUEST {
            let message = format!("the embedded runtime streams no request of more than {MAX_REQUEST} bytes");
            return Err(Status::invalid_argument(message));
        }
        self.0.retain(|_, (at, _)| now.duration_since(*at) < LIFE);
        if self.0.len() == MAX_WAITING {
            return Err(Status::resource_exhausted("maximum number of in-flight requests exceeded"));
        }
        let token = ids::fresh();
        self.0.insert(token.clone(), (now, request));
        Ok(token)
    }

    /// The request of a token, unless it was taken or has expired.
    pub(super) fn take(&mut self, token: &str, now: Instant) -> Option<cri::ExecRequest> {
        let (at, request) = self.0.remove(token)?;
        (now.duration_since(at) < LIFE).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::clock;

    fn request(command: &str) -> cri::ExecRequest {
        cri::ExecRequest { cmd: vec![command.to_owned()], ..Default::default() }
    }

    #[test]
    fn a_token_is_used_once_and_within_a_minute() {
        let (mut tokens, now) = (Tokens::default(), clock::now());
        let (one, two) = (tokens.add(request("one"), now).unwrap(), tokens.add(request("two"), now).unwrap());
        assert_ne!(one, two);
        assert_eq!(tokens.take("three", now), None);
        assert_eq!(tokens.take(&one, now + LIFE - Duration::from_millis(1)), Some(request("one")));
        assert_eq!(tokens.take(&one, now), None);
        assert_eq!(tokens.take(&two, now + LIFE), None);
    }

    #[test]
    fn a_thousand_wait_and_those_that_expire_make_room() {
        let (mut tokens, now) = (Tokens::default(), clock::now());
        for _ in 0..MAX_WAITING {
            tokens.add(request("wait"), now).unwrap();
        }
        assert_eq!(tokens.add(request("more"), now).unwrap_err().code(), Code::ResourceExhausted);
        tokens.add(request("more"), now + LIFE).unwrap();
        assert_eq!(tokens.0.len(), 1);
    }

    #[test]
    fn a_request_that_is_too_long_is_refused() {
        let (mut tokens, now) = (Tokens::default(), clock::now());
        let long = request(&"x".repeat(MAX_REQUEST));
        assert_eq!(tokens.add(long, now).unwrap_err().code(), Code::InvalidArgument);
    }
}
