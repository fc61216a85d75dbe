//! How a new client finds its deployment. It queries the seeds and the nodes that they list, and
//! accepts no view before the other views agree.
//!
//! The client waits for each seed until it answers or its connect timeout ends. It does not wait
//! for seeds that a map lists: those are nodes of that cluster. So a seed that is down delays a
//! client only if nothing is known of it. [`Deployment`] judges the answers.

use std::collections::VecDeque;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rwlease_core::resp::Address;

use crate::backend::ConnectionError;
use crate::router::cluster::deployment::Deployment;
use crate::router::cluster::node_view::{NodeView, ReportedTopology};
use crate::router::cluster::refresh::{NodeReply, QUERY_STAGGER, SAMPLE_SIZE};
use crate::router::cluster::topology::{DiscoveryError, Topology};
use crate::router::connections::unexpected_server::UnexpectedServer;
use crate::router::sentinel::SentinelGroup;
use crate::router::server_list::Failures;
use crate::router::telemetry;

/// A search for the deployment.
struct Search<'a> {
    topology: &'a Topology,
    /// The seeds that are not queried yet.
    seeds: VecDeque<Address>,
    /// The servers that were queried and have not answered.
    pending: Vec<Address>,
    queries: FuturesUnordered<BoxFuture<'a, NodeReply>>,
    queried: Vec<Address>,
    views: Vec<NodeView>,
    failures: Failures,
}

impl Topology {
    /// Finds the deployment of the seeds, or the master that sentinels name, and installs the first
    /// map.
    pub(crate) async fn discover(&self) -> Result<(), DiscoveryError> {
        match self.sentinels() {
            Some(sentinels) => self.discover_master(sentinels).await,
            None => self.discover_seeds().await,
        }
    }

    async fn discover_seeds(&self) -> Result<(), DiscoveryError> {
        let since = self.redirect_count();
        // All clients of a fleet have the same seeds: they should not all query the first one.
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        let mut search = Search {
            topology: self,
            seeds: seeds.into(),
            pending: Vec::new(),
            queries: FuturesUnordered::new(),
            queried: Vec::new(),
            views: Vec::new(),
            failures: Failures::default(),
        };
        search.find_first().await;
        search.collect_replies().await;
        let Search { views, failures, .. } = search;
        let failed = |otherwise: Option<ConnectionError>| {
            let (tried, failure) = failures.settle(&self.seeds, otherwise);
            telemetry::emit_refresh_failed(&failure.chain());
            Err(DiscoveryError::Unreachable(tried, failure))
        };
        if views.is_empty() {
            return failed(None);
        }
        match Deployment::of(views, &self.seeds) {
            Deployment::Several(why) => Err(DiscoveryError::MultipleServers(why)),
            Deployment::Unsure(why) => failed(Some(ConnectionError::not_sent(why))),
            Deployment::One { views, unexpected } => {
                for (address, why) in unexpected {
                    telemetry::emit_unexpected_server(&address, why.label(), &why);
                }
                match self.first_choice(&views) {
                    Some(view) => {
                        self.install(view, since);
                        Ok(())
                    }
                    None => failed(None),
                }
            }
        }
    }

    /// The client must reach the master before it relies on it.
    async fn discover_master(&self, sentinels: &SentinelGroup) -> Result<(), DiscoveryError> {
        let since = self.redirect_count();
        let master = sentinels.query().await.map_err(DiscoveryError::Sentinel)?.address;
        if let Err(failure) = self.connections.connect(&master, false).await {
            let source = failure.source.as_ref();
            let unexpected = source.and_then(|source| source.downcast_ref::<UnexpectedServer>());
            return Err(match unexpected {
                Some(UnexpectedServer::ClusterNode) => DiscoveryError::MultipleServers(format!(
                    "the sentinels name {master}, which is a node of a cluster; name nodes of the cluster in place of sentinels"
                )),
                _ => {
                    let mut failures = Failures::default();
                    failures.note(master.clone(), self.explain(failure, &master, None));
                    let (tried, failure) = failures.settle(&[master], None);
                    DiscoveryError::Unreachable(tried, failure)
                }
            });
        }
        self.install(
            NodeView { node: master, topology: ReportedTopology::Standalone(None) },
            since,
        );
        Ok(())
    }
}

impl Search<'_> {
    /// Queries one seed after the other until one answers.
    async fn find_first(&mut self) {
        while self.views.is_empty() {
            if let Some(seed) = self.seeds.pop_front() {
                self.query(seed);
            }
            if self.pending.is_empty() {
                return;
            }
            let is_last = self.seeds.is_empty();
            let clock = &self.topology.clock;
            let late = clock.sleep_until(clock.now().saturating_add(QUERY_STAGGER));
            tokio::select! {
                biased;
                Some(reply) = self.queries.next() => self.note(reply),
                () = late, if !is_last => {}
            }
        }
    }

    /// Queries the other seeds, and a few listed nodes, which may know of a newer map. Only seeds
    /// that no map lists are waited for.
    async fn collect_replies(&mut self) {
        let clock = &self.topology.clock;
        let mut late = clock.sleep_until(clock.now().saturating_add(QUERY_STAGGER));
        let mut is_late = false;
        while !self.views.is_empty() {
            self.query_others();
            let waits_for_seed = self.pending.iter().any(|node| self.is_needed(node));
            if self.pending.is_empty() || (is_late && !waits_for_seed) {
                return;
            }
            tokio::select! {
                biased;
                Some(reply) = self.queries.next() => self.note(reply),
                () = &mut late, if !is_late => is_late = true,
            }
        }
    }

    fn query_others(&mut self) {
        let (needed, mut others): (Vec<Address>, Vec<Address>) =
            std::mem::take(&mut self.seeds).into_iter().partition(|seed| self.is_needed(seed));
        needed.into_iter().for_each(|seed| self.query(seed));
        let mut listed: Vec<Address> = self.listed().cloned().collect();
        fastrand::shuffle(&mut listed);
        others.append(&mut listed);
        for node in others {
            if self.queried.len() < SAMPLE_SIZE && !self.queried.contains(&node) {
                self.query(node);
            }
        }
    }

    /// The nodes in the maps that were told.
    fn listed(&self) -> impl Iterator<Item = &Address> {
        self.views.iter().filter_map(NodeView::cluster).flat_map(|cluster| cluster.map.nodes())
    }

    /// Returns true for a seed that may be of another deployment.
    fn is_needed(&self, node: &Address) -> bool {
        self.topology.seeds.contains(node) && !self.views.iter().any(|view| view.lists(node))
    }

    fn query(&mut self, node: Address) {
        self.pending.push(node.clone());
        self.queried.push(node.clone());
        self.queries.push(self.topology.query(node).boxed());
    }

    fn note(&mut self, (node, outcome): NodeReply) {
        self.pending.retain(|pending| *pending != node);
        match outcome {
            Ok(view) => self.views.push(view),
            Err(failure) => self.failures.note(node, failure),
        }
    }
}
