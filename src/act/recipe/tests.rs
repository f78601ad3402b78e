//! What of a request stays the same, and what does not.

use proptest::{collection::vec, prelude::*};
use prost::Message;

use super::*;
use crate::proto::cri;

/// A request with a secret in it.
fn request(name: &str, attempt: u32) -> cri::CreateContainerRequest {
    cri::CreateContainerRequest {
        pod_sandbox_id: "s1".into(),
        config: Some(cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.into(), attempt }),
            command: vec!["run".into()],
            envs: vec![cri::KeyValue { key: "TOKEN".into(), value: b"hunter2".into() }],
            ..Default::default()
        }),
        sandbox_config: Some(cri::PodSandboxConfig { hostname: "h".into(), ..Default::default() }),
    }
}

fn again(request: &[u8], attempt: u32) -> Result<Bytes, Malformed> {
    Recipe::from(Arc::from(request)).again(attempt)
}

/// All fields of a request, the outer messages of the metadata opened, without the attempts.
fn without_attempts(mut message: &[u8], path: &[u32], out: &mut Vec<Vec<u8>>) {
    while let Some(field) = Field::next(&mut message).unwrap() {
        match path.split_first() {
            Some((&next, path)) if field.tag == next => {
                without_attempts(field.payload.unwrap(), path, out);
            }
            None if field.tag == ATTEMPT => {}
            _ => out.push(field.bytes.to_vec()),
        }
    }
}

/// Fields that no version knows, in front of a message, within it, or behind it.
fn unknown() -> impl Strategy<Value = Vec<u8>> {
    let length = vec(any::<u8>(), 0..20).prop_map(|payload| {
        let mut field = Vec::new();
        put(&mut field, 999, &payload);
        field
    });
    let number = any::<u64>().prop_map(|value| {
        let mut field = Vec::new();
        encode_key(1_000, WireType::Varint, &mut field);
        encode_varint(value, &mut field);
        field
    });
    prop_oneof![Just(Vec::new()), length, number]
}

/// An encoded request in parts: of a message that comes more than once, the parts are merged.
fn encoded() -> impl Strategy<Value = Vec<u8>> {
    let metadata =
        (unknown(), "[a-z]{0,3}", 0u32..3, unknown()).prop_map(|(before, name, attempt, after)| {
            let known = cri::ContainerMetadata { name, attempt }.encode_to_vec();
            [before, known, after].concat()
        });
    let config = (unknown(), vec(metadata, 1..3), vec("[a-z]{0,3}", 0..3), unknown()).prop_map(
        |(before, metadata, command, after)| {
            let mut config = before;
            metadata.iter().for_each(|metadata| put(&mut config, 1, metadata));
            config.extend(cri::ContainerConfig { command, ..Default::default() }.encode_to_vec());
            config.extend(after);
            config
        },
    );
    (unknown(), vec(config, 1..3), unknown()).prop_map(|(before, configs, after)| {
        let mut request = before;
        for config in configs {
            put(&mut request, 2, &config);
            put(&mut request, 1, b"s1");
        }
        request.extend(after);
        request
    })
}

proptest! {
    #[test]
    fn only_the_attempt_is_another(request in encoded(), attempt: u32) {
        let made = again(&request, attempt).unwrap();
        let mut expected = cri::CreateContainerRequest::decode(&*request).unwrap();
        expected.config.as_mut().unwrap().metadata.as_mut().unwrap().attempt = attempt;
        prop_assert_eq!(cri::CreateContainerRequest::decode(&*made).unwrap(), expected);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        without_attempts(&request, METADATA, &mut before);
        without_attempts(&made, METADATA, &mut after);
        prop_assert_eq!(after, before);
    }

    #[test]
    fn no_bytes_panic_and_what_can_be_read_is_read_alike(
        request in vec(prop_oneof![0u8..32, any::<u8>()], 0..60),
        attempt: u32,
    ) {
        let read = cri::CreateContainerRequest::decode(&*request);
        if let (Ok(made), Ok(mut expected)) = (again(&request, attempt), read) {
            let metadata = expected.config.as_mut().and_then(|config| config.metadata.as_mut());
            metadata.unwrap().attempt = attempt;
            prop_assert_eq!(cri::CreateContainerRequest::decode(&*made).unwrap(), expected);
        }
    }
}

#[test]
fn a_request_whose_attempt_was_there_keeps_every_other_byte() {
    let made = again(&request("app", 1).encode_to_vec(), 2).unwrap();
    assert_eq!(made, request("app", 2).encode_to_vec());
    // The first attempt is not sent, so the message gets longer.
    let made = again(&request("app", 0).encode_to_vec(), 300).unwrap();
    assert_eq!(made, request("app", 300).encode_to_vec());
}

#[test]
fn what_makes_no_container_is_no_recipe() {
    let config = cri::ContainerConfig { log_path: "app.log".into(), ..Default::default() };
    let without_metadata = cri::CreateContainerRequest { config: Some(config), ..Default::default() };
    let whole = request("app", 1).encode_to_vec();
    let rows: [(&str, &[u8]); 5] = [
        ("nothing", b""),
        ("no metadata", &without_metadata.encode_to_vec()),
        ("cut short", &whole[..whole.len() - 1]),
        ("a number for the config", b"\x10\x01"),
        ("a number for the metadata", b"\x12\x02\x08\x01"),
    ];
    for (rule, request) in rows {
        assert_eq!(again(request, 1), Err(Malformed), "{rule}");
    }
}

#[test]
fn a_recipe_shows_no_secret() {
    let recipe = Recipe::from(Arc::from(request("app", 1).encode_to_vec()));
    assert!(!format!("{recipe:?}").contains("hunter2") && format!("{recipe:?}").starts_with("Recipe("));
}
