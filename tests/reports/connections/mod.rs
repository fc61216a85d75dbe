//! Reports about connections, clusters and sentinels.
