//! The route of the command of an attempt, in the API: two fields of everything that shows an attempt.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::ExecMode;
use crate::results::exec_route::ExecRoute;

/// The route of one attempt; both fields are absent of what ran no command, and where the route is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecRouteView {
    /// `session`, `sync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_route: Option<ExecMode>,
    /// Why it was `sync` although a session was asked for, in words of a closed set; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_reason: Option<Cow<'static, str>>,
}

impl From<Option<ExecRoute>> for ExecRouteView {
    fn from(route: Option<ExecRoute>) -> Self {
        Self {
            exec_route: route.map(mode),
            exec_reason: route.and_then(ExecRoute::why_sync).map(|why| why.in_words().into()),
        }
    }
}

impl ExecRouteView {
    /// `session`, `sync (no shell in the image)`.
    pub fn in_words(&self) -> Option<String> {
        let route = self.exec_route?.as_str();
        Some(self.exec_reason.as_ref().map_or_else(|| route.to_owned(), |why| format!("{route} ({why})")))
    }

    /// Whether a session was asked for, as far as that is known.
    pub fn is_about_sessions(&self) -> bool {
        self.exec_route == Some(ExecMode::Session) || self.exec_reason.is_some()
    }
}

/// By what a command was run in the end.
pub(crate) fn mode(route: ExecRoute) -> ExecMode {
    match route {
        ExecRoute::Session => ExecMode::Session,
        ExecRoute::Sync | ExecRoute::Fallback(_) => ExecMode::Sync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::exec_route::WhySync;

    #[test]
    fn a_route_is_a_word_and_the_reason_why_it_is_not_the_one_that_was_asked_for() {
        for (route, json, words) in [
            (None, "{}", None),
            (Some(ExecRoute::Sync), r#"{"execRoute":"sync"}"#, Some("sync")),
            (Some(ExecRoute::Session), r#"{"execRoute":"session"}"#, Some("session")),
            (
                Some(ExecRoute::Fallback(WhySync::NoShell)),
                r#"{"execRoute":"sync","execReason":"no shell in the image"}"#,
                Some("sync (no shell in the image)"),
            ),
        ] {
            let view = ExecRouteView::from(route);
            assert_eq!(serde_json::to_string(&view).unwrap(), json);
            assert_eq!(view.in_words().as_deref(), words);
            assert_eq!(view.in_words(), route.map(|route| route.to_string()), "one wording");
            let is_as_asked = matches!(route, None | Some(ExecRoute::Sync));
            assert_eq!(view.is_about_sessions(), !is_as_asked, "{json}");
        }
    }
}
