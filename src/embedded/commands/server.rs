//! Commands on the server itself, the cluster, and channels.

use crate::embedded::answer::{Answer, Failure, OK, Outcome};
use crate::embedded::command::{Act, Command, Keys, MANY};
use crate::embedded::server::Role;
use crate::embedded::world::{At, World};
use crate::embedded::{glob, number};
use crate::slot::Slot;

/// The server version that is imitated.
const VERSION: &str = "7.0.15";

pub(in crate::embedded) static COMMANDS: &[Command] = &[
    Command::reads("PING", (0, 1), Keys::None, Act::Server(ping)),
    Command::reads("TIME", (0, 0), Keys::None, Act::Server(time)),
    Command::reads("INFO", (0, MANY), Keys::None, Act::Server(info)),
    Command::reads("CLUSTER", (1, MANY), Keys::None, Act::Server(cluster)),
    Command::reads("SPUBLISH", (2, 2), Keys::Channel, Act::Server(spublish)),
    Command::reads("PUBLISH", (2, 2), Keys::None, Act::Server(publish)),
    Command::reads("CONFIG", (1, MANY), Keys::None, Act::Server(config)).not_in_scripts(),
    Command::reads("CLIENT", (1, MANY), Keys::None, Act::Server(client)).not_in_scripts(),
    Command::reads("HELLO", (0, MANY), Keys::None, Act::Server(hello)).not_in_scripts(),
    Command::reads("WAIT", (2, 2), Keys::None, Act::Wait).not_in_scripts(),
    Command::reads("ASKING", (0, 0), Keys::None, Act::Acquiring).not_in_scripts(),
];

fn ping(_: &mut World, _: At, args: &[&[u8]]) -> Outcome {
    Ok(args.first().map_or(Answer::Status("PONG"), Answer::bulk))
}

fn time(_: &mut World, at: At, _: &[&[u8]]) -> Outcome {
    let (seconds, micros) = (at.now / 1_000_000, at.now % 1_000_000);
    Ok(Answer::bulks([seconds.to_string(), micros.to_string()]))
}

/// Only the section `server`, with the fields that a client may read.
fn info(world: &mut World, at: At, args: &[&[u8]]) -> Outcome {
    let names: [&[u8]; 4] = [b"server", b"default", b"all", b"everything"];
    let is_named = |arg: &&[u8]| names.iter().any(|name| name.eq_ignore_ascii_case(arg));
    if !args.is_empty() && !args.iter().any(is_named) {
        return Ok(Answer::bulk(""));
    }
    let mode = mode(world);
    let run_id = &world.servers[at.server].run_id;
    Ok(Answer::bulk(format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{mode}\r\nrun_id:{run_id}\r\nserver_time_usec:{}\r\n",
        at.now
    )))
}

fn mode(world: &World) -> &'static str {
    if world.is_cluster { "cluster" } else { "standalone" }
}

fn cluster(world: &mut World, at: At, args: &[&[u8]]) -> Outcome {
    if !world.is_cluster {
        return Err(Failure::NO_CLUSTER);
    }
    match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
        (b"SLOTS", []) => Ok(cluster_slots(world, at.server)),
        (b"INFO", []) => Ok(cluster_info(world, at.server)),
        (b"MYID", []) => Ok(Answer::bulk(&world.servers[at.server].id)),
        (b"KEYSLOT", [key]) => Ok(Answer::Int(Slot::of(key).get().into())),
        _ => Err(unknown_subcommand("CLUSTER", args[0])),
    }
}

/// Only the fields that a client reads.
fn cluster_info(world: &World, asked: usize) -> Answer {
    let server = &world.servers[asked];
    let state = if server.cluster_down { "fail" } else { "ok" };
    Answer::bulk(format!(
        "cluster_state:{state}\r\ncluster_current_epoch:{}\r\n",
        server.slots.epoch()
    ))
}

/// The view of the queried server.
fn cluster_slots(world: &World, asked: usize) -> Answer {
    let node = |index: usize| {
        let server = &world.servers[index];
        Answer::List(vec![
            Answer::bulk(server.address.host.as_bytes()),
            Answer::Int(server.address.port.into()),
            Answer::bulk(&server.id),
            Answer::List(Vec::new()),
        ])
    };
    let range = |(slots, master): (std::ops::RangeInclusive<usize>, usize)| {
        let ends = [Answer::count(*slots.start()), Answer::count(*slots.end())];
        let nodes = std::iter::once(master).chain(world.replicas_of(master)).map(node);
        Answer::List(ends.into_iter().chain(nodes).collect())
    };
    Answer::List(world.servers[asked].slots.ranges().map(range).collect())
}

fn spublish(world: &mut World, at: At, args: &[&[u8]]) -> Outcome {
    let receivers = world.servers[at.server].subscribers.publish(args[0], args[1]);
    Ok(Answer::count(receivers))
}

/// Only shard channels can have subscribers.
fn publish(_: &mut World, _: At, _: &[&[u8]]) -> Outcome {
    Ok(Answer::Int(0))
}

fn config(world: &mut World, at: At, args: &[&[u8]]) -> Outcome {
    if !args[0].eq_ignore_ascii_case(b"GET") {
        return Err(unknown_subcommand("CONFIG", args[0]));
    }
    let settings = [("maxmemory-policy", &world.servers[at.server].eviction_policy)];
    let asked =
        |name: &str| args[1..].iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let found = settings.into_iter().filter(|(name, _)| asked(name));
    Ok(Answer::bulks(found.flat_map(|(name, value)| [name, value.as_str()])))
}

fn client(_: &mut World, _: At, args: &[&[u8]]) -> Outcome {
    match args[0].to_ascii_uppercase().as_slice() {
        b"SETNAME" | b"SETINFO" => Ok(OK),
        _ => Err(unknown_subcommand("CLIENT", args[0])),
    }
}

fn hello(world: &mut World, at: At, args: &[&[u8]]) -> Outcome {
    let protocol = match args.first() {
        None => 2,
        Some(version) => match number::parse(version) {
            Some(version @ (2 | 3)) => version,
            Some(_) => return Err(Failure::of("NOPROTO unsupported protocol version")),
            None => {
                return Err(Failure::of("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let role = match world.servers[at.server].role {
        Role::Master => "master",
        Role::ReplicaOf(_) => "replica",
    };
    Ok(Answer::List(vec![
        Answer::bulk("server"),
        Answer::bulk("redis"),
        Answer::bulk("version"),
        Answer::bulk(VERSION),
        Answer::bulk("proto"),
        Answer::Int(protocol),
        Answer::bulk("mode"),
        Answer::bulk(mode(world)),
        Answer::bulk("role"),
        Answer::bulk(role),
    ]))
}

pub(super) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Failure {
    let subcommand = String::from_utf8_lossy(subcommand);
    Failure::new(format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP."))
}
