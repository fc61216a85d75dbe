//! Commands on the server itself, the cluster, and channels.

use rwlease_core::slot::Slot;

use crate::cluster_state::{ClusterWorld, CommandSite};
use crate::command_spec::{ANY_ARITY, CommandHandler, CommandSpec, KeyPositions};
use crate::reply::{CommandResult, ErrorReply, OK, RedisReply};
use crate::server::ServerRole;
use crate::{glob, number};

/// The server version that is imitated.
const VERSION: &str = "7.0.15";

pub(crate) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::of_server("PING", (0, 1), ping),
    CommandSpec::of_server("TIME", (0, 0), time),
    CommandSpec::of_server("INFO", (0, ANY_ARITY), info),
    CommandSpec::of_server("CLUSTER", (1, ANY_ARITY), cluster),
    CommandSpec::new("SPUBLISH", (2, 2), KeyPositions::Channel, CommandHandler::Server(spublish)),
    CommandSpec::of_server("CONFIG", (1, ANY_ARITY), config).not_in_scripts(),
    CommandSpec::of_server("CLIENT", (1, ANY_ARITY), client).not_in_scripts(),
    CommandSpec::of_server("HELLO", (0, ANY_ARITY), hello).not_in_scripts(),
    CommandSpec::new("WAIT", (2, 2), KeyPositions::None, CommandHandler::Wait).not_in_scripts(),
    CommandSpec::new("ASKING", (0, 0), KeyPositions::None, CommandHandler::Asking).not_in_scripts(),
];

fn ping(_: &mut ClusterWorld, _: CommandSite, args: &[&[u8]]) -> CommandResult {
    Ok(args.first().map_or(RedisReply::Status("PONG"), RedisReply::bulk))
}

fn time(_: &mut ClusterWorld, at: CommandSite, _: &[&[u8]]) -> CommandResult {
    let (seconds, micros) = (at.now / 1_000_000, at.now % 1_000_000);
    Ok(RedisReply::bulks([seconds.to_string(), micros.to_string()]))
}

/// Only the section `server`, with the fields that a client may read.
fn info(world: &mut ClusterWorld, at: CommandSite, args: &[&[u8]]) -> CommandResult {
    let names: [&[u8]; 4] = [b"server", b"default", b"all", b"everything"];
    let is_named = |arg: &&[u8]| names.iter().any(|name| name.eq_ignore_ascii_case(arg));
    if !args.is_empty() && !args.iter().any(is_named) {
        return Ok(RedisReply::bulk(""));
    }
    let mode = mode(world);
    let run_id = &world.servers[at.server].run_id;
    Ok(RedisReply::bulk(format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:{mode}\r\nrun_id:{run_id}\r\nserver_time_usec:{}\r\n",
        at.now
    )))
}

fn mode(world: &ClusterWorld) -> &'static str {
    if world.is_cluster { "cluster" } else { "standalone" }
}

fn cluster(world: &mut ClusterWorld, at: CommandSite, args: &[&[u8]]) -> CommandResult {
    if !world.is_cluster {
        return Err(ErrorReply::NO_CLUSTER);
    }
    match (args[0].to_ascii_uppercase().as_slice(), &args[1..]) {
        (b"SLOTS", []) => Ok(cluster_slots(world, at.server)),
        (b"INFO", []) => Ok(cluster_info(world, at.server)),
        (b"MYID", []) => Ok(RedisReply::bulk(&world.servers[at.server].id)),
        (b"KEYSLOT", [key]) => Ok(RedisReply::Int(Slot::of(key).get().into())),
        _ => Err(unknown_subcommand("CLUSTER", args[0])),
    }
}

/// Only the fields that a client reads.
fn cluster_info(world: &ClusterWorld, asked: usize) -> RedisReply {
    let server = &world.servers[asked];
    let state = if server.cluster_down { "fail" } else { "ok" };
    RedisReply::bulk(format!(
        "cluster_state:{state}\r\ncluster_current_epoch:{}\r\n",
        server.slots.epoch()
    ))
}

/// The view of the queried server.
fn cluster_slots(world: &ClusterWorld, asked: usize) -> RedisReply {
    let node = |index: usize| {
        let server = &world.servers[index];
        RedisReply::List(vec![
            RedisReply::bulk(server.address.host.as_bytes()),
            RedisReply::Int(server.address.port.into()),
            RedisReply::bulk(&server.id),
            RedisReply::List(Vec::new()),
        ])
    };
    let range = |(slots, master): (std::ops::RangeInclusive<usize>, usize)| {
        let ends = [RedisReply::count(*slots.start()), RedisReply::count(*slots.end())];
        let nodes = std::iter::once(master).chain(world.replicas_of(master)).map(node);
        RedisReply::List(ends.into_iter().chain(nodes).collect())
    };
    RedisReply::List(world.servers[asked].slots.ranges().map(range).collect())
}

fn spublish(world: &mut ClusterWorld, at: CommandSite, args: &[&[u8]]) -> CommandResult {
    let receivers = world.servers[at.server].subscribers.publish(args[0], args[1]);
    Ok(RedisReply::count(receivers))
}

fn config(world: &mut ClusterWorld, at: CommandSite, args: &[&[u8]]) -> CommandResult {
    if !args[0].eq_ignore_ascii_case(b"GET") {
        return Err(unknown_subcommand("CONFIG", args[0]));
    }
    let settings = [("maxmemory-policy", &world.servers[at.server].eviction_policy)];
    let asked =
        |name: &str| args[1..].iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let found = settings.into_iter().filter(|(name, _)| asked(name));
    Ok(RedisReply::bulks(found.flat_map(|(name, value)| [name, value.as_str()])))
}

fn client(_: &mut ClusterWorld, _: CommandSite, args: &[&[u8]]) -> CommandResult {
    match args[0].to_ascii_uppercase().as_slice() {
        b"SETNAME" | b"SETINFO" => Ok(OK),
        _ => Err(unknown_subcommand("CLIENT", args[0])),
    }
}

fn hello(world: &mut ClusterWorld, at: CommandSite, args: &[&[u8]]) -> CommandResult {
    let protocol = match args.first() {
        None => 2,
        Some(version) => match number::parse(version) {
            Some(version @ (2 | 3)) => version,
            Some(_) => return Err(ErrorReply::from_static("NOPROTO unsupported protocol version")),
            None => {
                return Err(ErrorReply::from_static(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        },
    };
    let role = match world.servers[at.server].role {
        ServerRole::Master => "master",
        ServerRole::ReplicaOf(_) => "replica",
    };
    Ok(RedisReply::List(vec![
        RedisReply::bulk("server"),
        RedisReply::bulk("redis"),
        RedisReply::bulk("version"),
        RedisReply::bulk(VERSION),
        RedisReply::bulk("proto"),
        RedisReply::Int(protocol),
        RedisReply::bulk("mode"),
        RedisReply::bulk(mode(world)),
        RedisReply::bulk("role"),
        RedisReply::bulk(role),
    ]))
}

pub(super) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> ErrorReply {
    let subcommand = String::from_utf8_lossy(subcommand);
    ErrorReply::new(format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP."))
}
