//! Checks whether the sentinels of a client watch one deployment.
//!
//! Two sentinels watch the same master if they report the same address, if one knows the other, or
//! if both know a third sentinel. Otherwise, sentinels that report different masters belong to two
//! deployments. A fact that a sentinel does not report is unknown, and contradicts no other report.

use crate::router::sentinel::report::SentinelReport;

/// Returns why the first reports are of several deployments. `None` if no report contradicts
/// another.
pub(crate) fn contradiction(reports: &[SentinelReport]) -> Option<String> {
    let naming: Vec<&SentinelReport> =
        reports.iter().filter(|report| report.master.is_some()).collect();
    let first = naming.iter().min_by_key(|report| &report.source)?;
    let mut related = vec![*first];
    // A report may be related to the first one by others.
    loop {
        let is_new = |report: &&&SentinelReport| {
            !related.iter().any(|other| std::ptr::eq(*other, **report))
                && related.iter().any(|other| is_related(other, report))
        };
        match naming.iter().find(is_new) {
            Some(report) => related.push(report),
            None => break,
        }
    }
    let is_apart =
        |report: &&&SentinelReport| !related.iter().any(|other| std::ptr::eq(*other, **report));
    let other = naming.iter().filter(is_apart).min_by_key(|report| &report.source)?;
    let (one, its) = (&first.source, first.address()?);
    let (another, others) = (&other.source, other.address()?);
    Some(format!(
        "the named sentinels are of several deployments: {one} names the master {its}, {another} \
         names {others}, and they do not know each other; name the sentinels of one deployment"
    ))
}

/// Returns true unless two reports are of different deployments.
fn is_related(one: &SentinelReport, other: &SentinelReport) -> bool {
    let (Some(id), Some(known)) = (&one.id, &one.known) else {
        return true;
    };
    let (Some(others_id), Some(others)) = (&other.id, &other.known) else {
        return true;
    };
    one.address() == other.address()
        || id == others_id
        || others.contains(id)
        || known.iter().any(|third| third == others_id || others.contains(third))
}

#[cfg(test)]
mod tests;
