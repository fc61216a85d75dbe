//! Whether servers without a cluster are one.

use crate::router::belief::{Told, View};

/// Whether servers without a cluster are one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sole {
    Fine,
    /// They are several servers, and each would grant what the others have granted.
    Several(String),
    /// Not all seeds have answered: they may be several.
    Unsure(String),
}

/// Judges the first views that there are, of so many seeds. One server may have several names.
pub(crate) fn sole(views: &[View], seeds: usize) -> Sole {
    let alone = views.iter().map(|view| match &view.told {
        Told::Alone(process) => Some((&view.node, process.as_ref().map(|process| &process.name))),
        Told::Cluster { .. } => None,
    });
    let Some(alone) = alone.collect::<Option<Vec<_>>>() else {
        return Sole::Fine;
    };
    let [(first, process), others @ ..] = &*alone else {
        return Sole::Fine;
    };
    if let Some((other, _)) = others.iter().find(|(_, other)| process.is_none() || other != process)
    {
        return Sole::Several(format!(
            "{first} and {other} are servers without cluster mode: name one of them, or the nodes of a cluster"
        ));
    }
    if alone.len() < seeds {
        return Sole::Unsure(format!(
            "{first} is a server without cluster mode, and not all of the other {} named servers tell whether they are the same",
            seeds - 1
        ));
    }
    Sole::Fine
}
