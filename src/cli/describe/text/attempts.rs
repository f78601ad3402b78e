//! The attempts of a probe: their routes, in one line; and with what was done because of them, as a table.

use std::{cmp::Reverse, collections::BTreeSet};

use super::*;

/// Attempts and acts in the order of their times, and where another container begins.
pub(super) fn with_acts<'a>(attempts: &'a [AttemptView], acts: &'a [ActNoteView]) -> Vec<Entry<'a>> {
    let attempts = attempts.iter().map(|attempt| (attempt.at, Entry::Attempt(attempt)));
    let mut all: Vec<_> = attempts.chain(acts.iter().map(|act| (act.at, Entry::Act(act)))).collect();
    all.sort_by_key(|&(at, _)| at);
    let mut entries = Vec::with_capacity(all.len());
    for (_, entry) in all {
        if let Entry::Attempt(attempt) = &entry
            && attempt.first_of_container
            && !entries.is_empty()
        {
            entries.push(Entry::NewContainer(attempt.container_attempt));
        }
        entries.push(entry);
    }
    entries
}

/// A row of the history.
pub(super) enum Entry<'a> {
    Attempt(&'a AttemptView),
    Act(&'a ActNoteView),
    /// What follows is of another container: of this attempt, if that is known.
    NewContainer(Option<u32>),
}

/// The route of the newest attempt, and how many in the history had another: `session; also in the history: 2 sync (first
/// attempt), 1 sync (the session ended)`.
pub(super) fn routes(last: &AttemptView, history: &[AttemptView]) -> Option<String> {
    let newest = last.route.in_words()?;
    let mut others: Vec<(usize, String)> = Vec::new();
    for route in history.iter().filter_map(|made| made.route.in_words()).filter(|route| *route != newest) {
        match others.iter_mut().find(|(_, known)| *known == route) {
            Some((count, _)) => *count += 1,
            None => others.push((1, route)),
        }
    }
    others.sort_by_key(|&(count, _)| Reverse(count));
    let others: Vec<_> = others.into_iter().map(|(count, route)| format!("{count} {route}")).collect();
    let others = (!others.is_empty()).then(|| format!("; also in the history: {}", others.join(", ")));
    Some(newest + &others.unwrap_or_default())
}

/// The route is a column only where attempts differ. Why it was not a session is shown where there is room.
pub(super) fn table(entries: &[Entry<'_>], page: Page) -> Table {
    let route = |attempt: &AttemptView| {
        let short = attempt.route.exec_route.map(|route| route.as_str().to_owned());
        if page.is_whole { attempt.route.in_words() } else { short }
    };
    let routes: BTreeSet<String> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Attempt(attempt) => route(attempt),
            Entry::Act(_) | Entry::NewContainer(_) => None,
        })
        .collect();
    let has_routes = routes.len() > 1;
    let mut table = if has_routes {
        super::table(["AT", "RESULT", "TOOK", "CODE", "ROUTE", "OUTPUT"])
    } else {
        super::table(["AT", "RESULT", "TOOK", "CODE", "OUTPUT"])
    };
    let mut add = |[at, result, took, code, output]: [Cell; 5], route: Option<String>| {
        let route = has_routes.then(|| Cell::from(route.unwrap_or_default()));
        table.row([at, result, took, code].into_iter().chain(route).chain([output]).collect());
    };
    for entry in entries {
        let attempt = match entry {
            Entry::Attempt(attempt) => attempt,
            Entry::NewContainer(attempt) => {
                let attempt = attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
                let mark = Cell::new(&format!("-- a new container{attempt} --"), Paint::Faint);
                add([Cell::from("--"), "--".into(), "".into(), "".into(), mark], None);
                continue;
            }
            Entry::Act(act) => {
                let acted = Cell::new("acted", Paint::Doubtful);
                let none = || Cell::from("");
                add([page.moment(act.at), acted, none(), none(), act.text.trim().into()], None);
                continue;
            }
        };
        let code = attempt.exit_code.map(|code| code.to_string());
        let code = code.or_else(|| attempt.status.map(|status| status.to_string()));
        let cells = [
            page.moment(attempt.at),
            Cell::new(attempt.result.as_str(), strip::paint(attempt.result)),
            measured(attempt.duration_seconds.0).into(),
            code.unwrap_or_default().into(),
            one_line(attempt.output.trim()).into(),
        ];
        add(cells, route(attempt));
    }
    table
}
