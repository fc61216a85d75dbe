//! The engine answers as a real server does: both run the same commands and scripts.

use std::iter;

use rwlease::embedded::EmbeddedCluster;

use crate::engine::Engine;
use crate::judge::Judge;
use crate::real::{RealConnection, start_server};

/// Values as Lua writes them, many of them odd.
const VALUES: &str = r"
    0; -0.0; 1; -1; 3.99; -3.99; 0.1; 1e-7; 123456.789; 2^53; 2^53+1; 1e16; 123456789012345678; 1e17
    2^62; 2^63; -2^63; 1e300; 1/0; -1/0; 0/0; ''; 'a'; 'a b'; '-a b'; '-'; '12'; '007'; ' 1'
    '9223372036854775807'; '-9223372036854775808'; '9223372036854775808'; 'a\0b'; '\255\254'
    'a\r\nb'; nil; true; false";

/// Numbers that servers after Redis 7.0 pass to commands in another form.
const REFORMED: &str = "
    -0.0; 3.99; -3.99; 0.1; 1e-7; 123456789012345678; 1e17; 2^62; 2^63; -2^63; 1e300";

/// What each value, written `$`, is used for.
const USES: &[&str] = &[
    "return $",
    "return {$}",
    "return {1, $, 3}",
    "return {{$}, {'x'}}",
    "return {ok = $}",
    "return {err = $}",
    "return tostring($)",
    "return type($)",
    "return tonumber($)",
    "redis.call('SET', KEYS[1], $) return redis.call('GET', KEYS[1])",
    "return redis.pcall('SET', KEYS[1], $)",
    "return redis.call('HSET', KEYS[1], $, 'v')",
    "redis.call('HSET', KEYS[1], 'f', 'v') return redis.call('HGET', KEYS[1], $)",
    "redis.call('HSET', KEYS[1], 'f', 'v') return redis.call('HMGET', KEYS[1], $, 'f')",
    "redis.call('HSET', KEYS[1], 'f', 'v') return redis.call('HDEL', KEYS[1], 'f', $)",
    "redis.call('HSET', KEYS[1], 'f', 'v') return redis.call('PEXPIREAT', KEYS[1], $)",
    "return redis.call('SET', KEYS[1], 'v', 'PX', $)",
    "return redis.call('SET', KEYS[1], 'v', 'EX', $)",
    "return redis.call('SET', KEYS[1], 'v', $)",
    "return redis.call($)",
    "return redis.call('GET', $)",
    "return redis.pcall('GET', $)",
    "return redis.status_reply($)",
    "return redis.error_reply($)",
    "return redis.sha1hex($)",
    "return redis.log($)",
    "return redis.log($, 'x')",
    "return {pcall(error, $)}",
    "error($)",
    "local t = {} t[1] = $ t[2] = 2 return t",
    "return string.format('%s', tostring($))",
    "return string.format('%d', $)",
    "return string.format('%.0f', $)",
    "return {tonumber(ARGV[2]) + ($)}",
    "return math.floor($)",
    "return (ARGV[1] .. $)",
];

/// Scripts without a value to vary.
const SCRIPTS: &[&str] = &[
    "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]}",
    "return {#KEYS, #ARGV}",
    "KEYS[1] = 'x' return KEYS[1]",
    "KEYS = {} return 1",
    "return 1, 2",
    "return",
    "return ...",
    "return {}",
    "return {{}, {{}}}",
    "return {[2] = 1}",
    "return {1, 2, nil, 4}",
    "return {ok = 'a', err = 'MY b'}",
    "return {1, ok = 'fine'}",
    "return {{err = 'MY inner'}, {ok = 'fine'}}",
    "return setmetatable({}, {__index = function(_, i) if i < 3 then return i end end})",
    "return function() end",
    "return {function() end, 1}",
    "return coroutine.wrap(function() return redis.call('EXISTS', KEYS[1]) end)()",
    "x = 1",
    "return x",
    "local x = x",
    "function f() end",
    "string.foo = 1",
    "redis.foo = 1",
    "return redis.nosuch",
    "return string.nosuch",
    "_G.x = 1",
    "return _G.x",
    "return _G._G == _G",
    "rawset(_G, 'x', 1)",
    "rawset(string, 'x', 1)",
    "setmetatable(_G, {})",
    "return loadstring('return 1')()",
    "return loadstring('y = 1')()",
    "return loadstring('return y')()",
    "return loadstring('this is no code')",
    "return loadstring(\"return redis.call('EXISTS', KEYS[1])\")()",
    "return print",
    "return io",
    "return require",
    "return dofile",
    "return setfenv",
    "return getfenv",
    "return newproxy",
    "return type(gcinfo())",
    "return collectgarbage('count') > 0",
    "return _VERSION",
    "return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING}",
    "return redis.replicate_commands()",
    "return redis.log(redis.LOG_DEBUG, 'a', 'b')",
    "return redis.log()",
    "return redis.sha1hex()",
    "return redis.sha1hex('a', 'b')",
    "return redis.error_reply()",
    "return redis.error_reply('MY a', 'b')",
    "return redis.status_reply()",
    "return redis.error_reply('MY own text').err",
    "return redis.status_reply('fine').ok",
    "return math.random() == 0",
    "return {tostring(math.random()), math.random(10), math.random(5, 9), math.random(-3, 3)}",
    "math.randomseed(7) return {tostring(math.random()), math.random(10), math.random(1000000)}",
    "math.randomseed(-7.5) return math.random(1000000)",
    "return 1 < 'a'",
    "return nil .. 'a'",
    "return #nil",
    "local x = nil return x.y",
    "local x = nil + 1",
    "return ('x').y.z",
    "nosuch()",
    "local function f() return f() + 1 end return f()",
    "error('MY own', 0)",
    "error('MY own', 2)",
    "error({err = 'MY own'})",
    "error({err = 'MY own', 1})",
    "assert(false)",
    "assert(false, 'MY own')",
    "assert(nil, {err = 'MY own'})",
    "return {pcall(error, {err = 'MY own'})}",
    "return {pcall(error, {})}",
    "return {pcall(error)}",
    "return {select('#', pcall(function() return 1, nil, nil end))}",
    "return {xpcall(function() error('x') end, function(e) return 'handled' end)}",
    "return {xpcall(function() redis.call('NOSUCH') end, function(e) return type(e) end)}",
    "return {xpcall(function() redis.call('NOSUCH') end, function(e) return e.err end)}",
    "return {pcall(redis.call, 'NOSUCH')}",
    "return redis.pcall('NOSUCH').err",
    "return redis.pcall()",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('GET', {})",
    "return redis.call('get', KEYS[1])",
    "return redis.call('GeT', KEYS[1])",
    "return redis.call('NOSUCH', KEYS[1])",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('EVAL')",
    "return redis.call('SCRIPT', 'FLUSH')",
    "return redis.call('CONFIG', 'GET', 'maxmemory')",
    "return redis.call('HELLO', 3)",
    "return redis.call('CLIENT', 'SETNAME', 'x')",
    "return redis.call('PING')",
    "return type(redis.call('PING'))",
    "return redis.call('PING').ok",
    "return redis.call('TIME', 1)",
    "return #redis.call('TIME')",
    "return type(redis.call('TIME')[1])",
    "return redis.call('SPUBLISH', 'c', 'x')",
    "return redis.call('SPUBLISH', 'c')",
    "return redis.call('CLUSTER', 'SLOTS')",
    "return tostring(redis.call('GET', KEYS[1]))",
    "return tostring(redis.call('HGET', KEYS[1], 'f'))",
    "return redis.call('HGET', KEYS[1], 'f') == false",
    "return #redis.call('HMGET', KEYS[1], 'a', 'b')",
    "redis.call('SET', KEYS[1], 'v') return redis.pcall('HGET', KEYS[1], 'f').err",
    "redis.call('SET', KEYS[1], 'v') return {pcall(redis.call, 'HGET', KEYS[1], 'f')}",
    "return tostring(redis.call('SET', KEYS[1], 'v', 'XX'))",
    "redis.call('SET', KEYS[1], 'v', 'EX', 100) redis.call('SET', KEYS[1], 'w', 'KEEPTTL') return redis.call('PTTL', KEYS[1]) > 90000",
    "redis.call('SET', KEYS[1], 'v', 'EX', 100) redis.call('SET', KEYS[1], 'w') return redis.call('PTTL', KEYS[1])",
    "redis.call('HSET', KEYS[1], 'f', 'v') redis.call('PEXPIREAT', KEYS[1], 4102444800000) redis.call('HSET', KEYS[1], 'g', 'v') return redis.call('PTTL', KEYS[1]) > 40000",
    "return this is no code",
    "return 'unfinished",
    "redis.call('HSET', KEYS[1], 'f', 'v') error('after a write')",
];

/// What a key holds before a call: nothing, a string, a string that expires, or a hash.
const HELD: [&str; 4] = [
    "",
    "redis.call('SET', KEYS[1], 'v')",
    "redis.call('SET', KEYS[1], 'v', 'PXAT', 4102444800000)",
    "redis.call('HSET', KEYS[1], 'f', '5')",
];

/// Calls by a script of the key `k`, each made whatever the key holds.
const CALLS: &str = "
    GET k; TYPE k; EXISTS k k; DEL k k; HGETALL k; HGET k f; HMGET k a f; HDEL k f; HDEL k a f f
    HDEL k; HSET k f w; HSET k a 1 b 2 a 3; HSET k a; HSET k a 1 b
    SET k w; SET k w NX; SET k w XX; SET k w GET; SET k w NX GET; SET k w KEEPTTL; SET k w NX XX
    SET k w NX nx px 1000; SET k w PX; SET k w PX 1000 EX 1; SET k w PX 1000 KEEPTTL
    SET k w KEEPTTL EX 1; SET k w EX 9223372036854775807; SET k w PX 9223372036854775807
    SET k w PXAT 9223372036854775807; SET k w PXAT 1; SET k w EXAT 1; SET k w EX 100
    PEXPIREAT k 4102444800000; PEXPIREAT k 1; PEXPIREAT k 0; PEXPIREAT k -9223372036854775808
    PEXPIREAT k 9223372036854775807
    SCAN 0 COUNT 1000 MATCH k*; SCAN 0 COUNT 1000 MATCH x*; SCAN 0 COUNT 1000 TYPE hash; SCAN x
    SCAN 0 COUNT 0; SCAN 0 COUNT x; SCAN 0 COUNT; SCAN 0 NOSUCH 1";

/// Commands outside scripts.
const COMMANDS: &str = "
    PING; PING x; PING x y; ping; NOSUCH; NOSUCH a b; GET; GET k; GET k k; HGET k; TIME x
    EVALSHA abc 0; EVALSHA ffffffffffffffffffffffffffffffffffffffff 0; EVAL return_1 x
    EVAL return_1 -1; EVAL return_1 2 a; EVAL; EVALSHA abc; SCRIPT; SCRIPT NOSUCH
    SCRIPT EXISTS abc ffffffffffffffffffffffffffffffffffffffff; SCRIPT FLUSH MAYBE
    SCRIPT FLUSH SYNC; SCRIPT LOAD x; SCRIPT LOAD return; CLUSTER; CLUSTER SLOTS; CLUSTER MYID
    ASKING; WAIT a 0; WAIT 0 a; WAIT 0 0; WAIT 0 -1; CONFIG NOSUCH; CONFIG GET maxmemory-policy
    CONFIG GET maxmemory-pol*; HELLO 4; HELLO x; SET k v; SET k v PX 0; SET k v NX; GET k; TYPE k
    HSET k a b; HSET k a; DEL k; HSET k a b; HGETALL k; GET k; EXISTS k k; PEXPIREAT k x; PTTL none
    SPUBLISH c x; SPUBLISH c; DEL k none; CLIENT SETNAME x; SCAN 0";

/// Commands for a server whose memory is full.
const FULL_MEMORY_COMMANDS: &str = "
    SET k v; GET k; HSET k f v; HDEL k f; DEL k; PEXPIREAT k 5; SCRIPT LOAD return; SPUBLISH c x
    EVAL return 0";

/// Scripts for a server whose memory is full. Each runs on what the one before has left.
const FULL_MEMORY_SCRIPTS: &[&str] = &[
    "return redis.call('HSET', KEYS[1], 'f', 'v')",
    "return redis.pcall('HSET', KEYS[1], 'f', 'v')",
    "return redis.call('SET', KEYS[1], 'v')",
    "redis.pcall('HSET', KEYS[1], 'f', 'v') return redis.pcall('HSET', KEYS[1], 'f', 'v')",
    "redis.call('GET', KEYS[1]) return redis.call('HSET', KEYS[1], 'f', 'v')",
    "redis.call('HDEL', KEYS[1], 'absent') return redis.call('HSET', KEYS[1], 'f', 'v')",
    "return redis.call('HSET', KEYS[1], 'f', 'w')",
    "redis.call('PEXPIREAT', KEYS[1], 4102444800000) return redis.call('HSET', KEYS[1], 'f', 'w')",
    "redis.pcall('HDEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'f', 'v')",
    "redis.call('SPUBLISH', 'c', 'x') return redis.call('HSET', KEYS[1], 'f', 'v')",
    "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], 'v')",
    "redis.pcall('HDEL', KEYS[1], 'x') return redis.call('SET', KEYS[1], 'v')",
    "return redis.call('GET', KEYS[1])",
    "return redis.sha1hex('x')",
];

#[test]
fn scripts_and_commands_answer_as_on_a_server() {
    let server = start_server();
    let mut real = RealConnection::to(&server);
    let engine = Engine::start(EmbeddedCluster::builder(), iter::empty());
    let judge = Judge::of(&mut real);

    let varied = USES.iter().flat_map(|using| {
        let values = items(VALUES).filter(|value| expects(&judge, using, value));
        values.map(|value| using.replace('$', value))
    });
    let scripts = varied.chain(SCRIPTS.iter().map(|script| (*script).to_owned())).chain(calls());
    let mut wrong: Vec<String> =
        scripts.filter_map(|script| compare_scripts(&judge, &mut real, &engine, &script)).collect();
    real.query(&["FLUSHALL"]);
    engine.cluster.faults().flush_data(0);
    let mut compare = |command: &[&str]| compare(&judge, &mut real, &engine, command);
    wrong.extend(items(COMMANDS).filter_map(|command| compare(&words(command))));
    compare(&["CONFIG", "SET", "maxmemory", "1"]);
    engine.cluster.faults().set_out_of_memory(0, true);
    wrong.extend(items(FULL_MEMORY_COMMANDS).filter_map(|command| compare(&words(command))));
    let scripts = FULL_MEMORY_SCRIPTS.iter();
    wrong.extend(scripts.filter_map(|script| compare(&["EVAL", script, "1", "k"])));
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The items of a list in a text.
fn items(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split([';', '\n']).map(str::trim).filter(|item| !item.is_empty())
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

/// The scripts that make the calls, and tell what is left of the key.
fn calls() -> impl Iterator<Item = String> {
    let quoted = |word: &str| if word == "k" { "KEYS[1]".into() } else { format!("'{word}'") };
    let call = move |held: &str, call: &str| {
        let words: Vec<String> = call.split(' ').map(quoted).collect();
        let words = words.join(", ");
        let left = "redis.call('TYPE', KEYS[1]), tostring(redis.call('PTTL', KEYS[1]) > 0)";
        [
            format!("{held} return redis.call({words})"),
            format!("{held} return {{redis.pcall({words}) or 'no', {left}}}"),
        ]
    };
    HELD.iter().flat_map(move |held| items(CALLS).flat_map(move |words| call(held, words)))
}

fn expects(judge: &Judge, using: &str, value: &str) -> bool {
    judge.is_same_version
        || !using.contains("call(")
        || !items(REFORMED).any(|reformed| reformed == value)
}

fn compare_scripts(
    judge: &Judge,
    real: &mut RealConnection,
    engine: &Engine,
    script: &str,
) -> Option<String> {
    real.query(&["DEL", "k"]);
    engine.query(&["DEL", "k"]);
    compare(judge, real, engine, &["EVAL", script, "1", "k", "arg", "7", "\u{ff}"])
}

fn compare(
    judge: &Judge,
    real: &mut RealConnection,
    engine: &Engine,
    command: &[&str],
) -> Option<String> {
    let expected = judge.essence(real.query(command));
    let actual = judge.essence(engine.query(command));
    (expected != actual)
        .then(|| format!("{}\n   server {expected:?}\n   engine {actual:?}", command.join(" ")))
}
