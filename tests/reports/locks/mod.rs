//! Reports about locks.

mod bsm_redislock_28;
mod cozy_stack_4911;
mod hazelcast_13552;
mod node_redlock_11;
mod node_redlock_169;
mod redis_py_375;
mod redis_py_629;
mod redisson_2099;
mod redisson_2444;
mod redisson_3166;
mod redisson_3194;
mod redisson_4064;
mod redisson_4744;
mod redisson_5697;
mod redisson_7251;
mod redisson_7272;
mod redlock_39;
mod redlock_6;
mod rueidis_604;
mod sage_255;
mod spring_integration_11044;
mod spring_integration_2660;
