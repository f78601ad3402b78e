//! Converts the configuration in effect into its view: the loaded configuration in, every setting and rule with its
//! origin out.

use super::view::{ConfigurationView, RuleView, SettingValue, SettingView};
use crate::config::{Loaded, Setting};

/// The view of what was loaded.
pub(super) fn view(loaded: &Loaded) -> ConfigurationView {
    let rules = loaded.config.policy.rules.iter().zip(&loaded.rules);
    ConfigurationView {
        files: loaded.files.iter().map(|file| file.display().to_string()).collect(),
        settings: loaded.settings.iter().map(setting).collect(),
        rules: rules.map(|(rule, origin)| RuleView::of(rule, origin.to_string())).collect(),
    }
}

fn setting(setting: &Setting) -> SettingView {
    let value = if setting.key.is_list() {
        SettingValue::Many(setting.texts.clone())
    } else {
        SettingValue::One(setting.texts.concat())
    };
    SettingView { key: setting.key.path().to_owned(), value, from: setting.origin.to_string() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Overrides, key::Key, raw::Raw, resolve::resolve};

    #[test]
    fn the_view_tells_who_said_what_and_no_secret() {
        let text = r#"
prober: {workers: 8, allowHosts: [10.0.0.0/8]}
rules:
  - name: web
    match: {namespace: "shop-*", labels: {tier: front}}
    enforce: true
    liveness:
      httpGet: {path: /healthz, port: http, httpHeaders: [{name: Authorization, value: Bearer s3cret}]}
"#;
        let overrides = Overrides::default().flag(Key::Listen, Some("/tmp/x.sock".to_owned()));
        let loaded = resolve(&[Raw::read(text, Path::new("c.yaml"))], &overrides, &|_| Ok(None)).unwrap();
        let json = serde_json::to_string_pretty(&view(&loaded)).unwrap();
        assert!(!json.contains("s3cret"), "{json}");
        insta::assert_snapshot!(json);
    }
}
