//! The fields of the messages that a container is created from (cri-api 0.37): the name in the runtime's JSON, the number
//! on the wire, and the type. What is only for Windows is not among them.

/// The fields of a message.
pub(super) type Fields = &'static [(&'static str, u32, Kind)];

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Texts,
    Flag,
    /// An integer of any width, or an enum.
    Number,
    Numbers,
    /// From text to text.
    Map,
    /// The value of a variable: bytes, which older runtimes show as text.
    Value,
    Message(Fields),
    Messages(Fields),
}

use Kind::{Flag, Map, Message, Messages, Number, Numbers, Text, Texts, Value};

pub(super) const CONTAINER: Fields = &[
    ("metadata", 1, Message(&[("name", 1, Text), ("attempt", 2, Number)])),
    ("image", 2, Message(IMAGE)),
    ("command", 3, Texts),
    ("args", 4, Texts),
    ("working_dir", 5, Text),
    ("envs", 6, Messages(&[("key", 1, Text), ("value", 2, Value)])),
    ("mounts", 7, Messages(MOUNT)),
    (
        "devices",
        8,
        Messages(&[("container_path", 1, Text), ("host_path", 2, Text), ("permissions", 3, Text)]),
    ),
    ("labels", 9, Map),
    ("annotations", 10, Map),
    ("log_path", 11, Text),
    ("stdin", 12, Flag),
    ("stdin_once", 13, Flag),
    ("tty", 14, Flag),
    (
        "linux",
        15,
        Message(&[("resources", 1, Message(RESOURCES)), ("security_context", 2, Message(SECURITY))]),
    ),
    ("CDI_devices", 17, Messages(&[("name", 1, Text)])),
    ("stop_signal", 18, Number),
];

pub(super) const SANDBOX: Fields = &[
    (
        "metadata",
        1,
        Message(&[("name", 1, Text), ("uid", 2, Text), ("namespace", 3, Text), ("attempt", 4, Number)]),
    ),
    ("hostname", 2, Text),
    ("log_directory", 3, Text),
    ("dns_config", 4, Message(&[("servers", 1, Texts), ("searches", 2, Texts), ("options", 3, Texts)])),
    (
        "port_mappings",
        5,
        Messages(&[
            ("protocol", 1, Number),
            ("container_port", 2, Number),
            ("host_port", 3, Number),
            ("host_ip", 4, Text),
        ]),
    ),
    ("labels", 6, Map),
    ("annotations", 7, Map),
    (
        "linux",
        8,
        Message(&[
            ("cgroup_parent", 1, Text),
            ("security_context", 2, Message(SANDBOX_SECURITY)),
            ("sysctls", 3, Map),
            ("overhead", 4, Message(RESOURCES)),
            ("resources", 5, Message(RESOURCES)),
        ]),
    ),
];

const IMAGE: Fields = &[
    ("image", 1, Text),
    ("annotations", 2, Map),
    ("user_specified_image", 18, Text),
    ("runtime_handler", 19, Text),
    ("image_ref", 20, Text),
];

const MOUNT: Fields = &[
    ("container_path", 1, Text),
    ("host_path", 2, Text),
    ("readonly", 3, Flag),
    ("selinux_relabel", 4, Flag),
    ("propagation", 5, Number),
    ("uidMappings", 6, Messages(ID_MAPPING)),
    ("gidMappings", 7, Messages(ID_MAPPING)),
    ("recursive_read_only", 8, Flag),
    ("image", 9, Message(IMAGE)),
    ("image_sub_path", 10, Text),
];

const ID_MAPPING: Fields = &[("host_id", 1, Number), ("container_id", 2, Number), ("length", 3, Number)];

const RESOURCES: Fields = &[
    ("cpu_period", 1, Number),
    ("cpu_quota", 2, Number),
    ("cpu_shares", 3, Number),
    ("memory_limit_in_bytes", 4, Number),
    ("oom_score_adj", 5, Number),
    ("cpuset_cpus", 6, Text),
    ("cpuset_mems", 7, Text),
    ("hugepage_limits", 8, Messages(&[("page_size", 1, Text), ("limit", 2, Number)])),
    ("unified", 9, Map),
    ("memory_swap_limit_in_bytes", 10, Number),
];

const SECURITY: Fields = &[
    (
        "capabilities",
        1,
        Message(&[
            ("add_capabilities", 1, Texts),
            ("drop_capabilities", 2, Texts),
            ("add_ambient_capabilities", 3, Texts),
        ]),
    ),
    ("privileged", 2, Flag),
    ("namespace_options", 3, Message(NAMESPACES)),
    ("selinux_options", 4, Message(SELINUX)),
    ("run_as_user", 5, Message(INT64)),
    ("run_as_username", 6, Text),
    ("readonly_rootfs", 7, Flag),
    ("supplemental_groups", 8, Numbers),
    ("apparmor_profile", 9, Text),
    ("seccomp_profile_path", 10, Text),
    ("no_new_privs", 11, Flag),
    ("run_as_group", 12, Message(INT64)),
    ("masked_paths", 13, Texts),
    ("readonly_paths", 14, Texts),
    ("seccomp", 15, Message(PROFILE)),
    ("apparmor", 16, Message(PROFILE)),
    ("supplemental_groups_policy", 17, Number),
];

const SANDBOX_SECURITY: Fields = &[
    ("namespace_options", 1, Message(NAMESPACES)),
    ("selinux_options", 2, Message(SELINUX)),
    ("run_as_user", 3, Message(INT64)),
    ("readonly_rootfs", 4, Flag),
    ("supplemental_groups", 5, Numbers),
    ("privileged", 6, Flag),
    ("seccomp_profile_path", 7, Text),
    ("run_as_group", 8, Message(INT64)),
    ("seccomp", 9, Message(PROFILE)),
    ("apparmor", 10, Message(PROFILE)),
    ("supplemental_groups_policy", 11, Number),
];

const NAMESPACES: Fields = &[
    ("network", 1, Number),
    ("pid", 2, Number),
    ("ipc", 3, Number),
    ("target_id", 4, Text),
    (
        "userns_options",
        5,
        Message(&[("mode", 1, Number), ("uids", 2, Messages(ID_MAPPING)), ("gids", 3, Messages(ID_MAPPING))]),
    ),
];

const SELINUX: Fields = &[("user", 1, Text), ("role", 2, Text), ("type", 3, Text), ("level", 4, Text)];

const INT64: Fields = &[("value", 1, Number)];

const PROFILE: Fields = &[("profile_type", 1, Number), ("localhost_ref", 2, Text)];
