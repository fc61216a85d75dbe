//! One connection that carries subscriptions, from its dial to its end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{self, Either};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::clock::{Clock, Moment};
use crate::node::{Address, Connector, Ear, NodeError, Notice, ServerError, Subscribed};
use crate::observe;
use crate::router::Slot;
use crate::router::subscriptions::{Event, Events};

/// How often the link looks after itself.
const TICK: Duration = Duration::from_secs(1);

/// A server that says nothing for so long after it was asked something is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// After so long a silence one channel is joined again, which is harmless, to see whether the server is still there.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection without channels is closed after this.
const IDLE: Duration = Duration::from_secs(30);

/// What the keeper wants of a link.
#[derive(Debug)]
pub(super) enum LinkOrder {
    Join { channel: Bytes, asking: bool },
    Leave { channel: Bytes },
}

/// What a link tells the keeper. (Messages go straight to those who want them.)
#[derive(Debug)]
pub(super) struct News {
    pub(super) address: Address,
    /// Which link to that server, among those that there have been.
    pub(super) id: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Up,
    Joined(Bytes),
    Left(Bytes),
    Refused(Bytes, ServerError),
    /// The link has ended. `idle` means: by itself, since it had nothing to do.
    Ended {
        idle: bool,
    },
}

/// A link under way. It ends when the keeper drops its orders.
pub(super) struct Link {
    pub(super) address: Address,
    pub(super) id: u64,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connect_timeout: Duration,
    pub(super) orders: mpsc::UnboundedReceiver<LinkOrder>,
    pub(super) news: mpsc::UnboundedSender<News>,
    pub(super) events: Events,
}

/// Why a link ends.
enum End {
    Idle,
    Lost,
}

impl Link {
    pub(super) async fn run(mut self) {
        let end = match self.dial().await {
            Ok(subscribed) => {
                self.tell(What::Up);
                self.serve(subscribed).await
            }
            Err(failure) => {
                observe::subscribe_failed(&self.address, None, &failure);
                End::Lost
            }
        };
        self.tell(What::Ended {
            idle: matches!(end, End::Idle),
        });
    }

    async fn dial(&self) -> Result<Subscribed, NodeError> {
        let until = self.clock.now().after(self.connect_timeout);
        match future::select(self.connector.subscribe(&self.address), self.clock.sleep_until(until)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(NodeError::unsent(format!("no answer in {:?}", self.connect_timeout))),
        }
    }

    async fn serve(&mut self, (subscription, mut notices): Subscribed) -> End {
        subscription.hear_by(self.ear());
        let mut under_way = FuturesUnordered::new();
        let mut pulse = Pulse::new(self.clock.now());
        let mut tick = self.clock.sleep_until(self.clock.now().after(TICK));
        loop {
            let order = tokio::select! {
                biased;
                notice = notices.recv() => {
                    let Some(notice) = notice else { return End::Lost };
                    pulse.heard(self.clock.now(), &notice);
                    self.pass_on(notice);
                    continue;
                }
                order = self.orders.recv() => match order {
                    Some(order) => order,
                    None => return End::Idle,
                },
                Some(outcome) = under_way.next() => match outcome {
                    Ok(()) => continue,
                    Err(failure) => {
                        observe::subscribe_failed(&self.address, None, &failure);
                        return End::Lost;
                    }
                },
                () = &mut tick => {
                    tick = self.clock.sleep_until(self.clock.now().after(TICK));
                    match pulse.check(self.clock.now()) {
                        Check::Well => continue,
                        Check::Ask(order) => order,
                        Check::End(end) => return end,
                    }
                }
            };
            pulse.ordered(self.clock.now(), &order);
            let subscription = subscription.clone();
            under_way.push(async move {
                match order {
                    LinkOrder::Join { channel, asking } => subscription.join(&channel, asking).await,
                    LinkOrder::Leave { channel } => subscription.leave(&channel).await,
                }
            });
        }
    }

    fn pass_on(&self, notice: Notice) {
        match notice {
            Notice::Joined { channel } => self.tell(What::Joined(channel)),
            Notice::Left { channel } => self.tell(What::Left(channel)),
            Notice::Refused { channel, error } => self.tell(What::Refused(channel, error)),
            Notice::Message { channel, payload } => self.ear()(channel, payload),
        }
    }

    /// Passes messages on.
    fn ear(&self) -> Ear {
        let (address, clock, events) = (self.address.clone(), self.clock.clone(), self.events.clone());
        Box::new(move |channel, payload| {
            events.tell(Event::Message {
                slot: Slot::of(&channel),
                address: address.clone(),
                payload,
                received: clock.now(),
            });
        })
    }

    fn tell(&self, what: What) {
        let _ = self.news.send(News {
            address: self.address.clone(),
            id: self.id,
            what,
        });
    }
}

/// Whether the server is still there, and whether it is still needed.
struct Pulse {
    /// The joined channels, and whether they were joined as a guest.
    channels: BTreeMap<Bytes, bool>,
    /// As `channels`, for those that were asked for.
    asked: HashMap<Bytes, bool>,
    waiting_since: Option<Moment>,
    last_heard: Moment,
    last_order: Moment,
}

/// What a look at the pulse says.
enum Check {
    Well,
    Ask(LinkOrder),
    End(End),
}

impl Pulse {
    fn new(now: Moment) -> Self {
        Pulse {
            channels: BTreeMap::new(),
            asked: HashMap::new(),
            waiting_since: None,
            last_heard: now,
            last_order: now,
        }
    }

    fn ordered(&mut self, now: Moment, order: &LinkOrder) {
        self.waiting_since.get_or_insert(now);
        self.last_order = now;
        if let LinkOrder::Join { channel, asking } = order {
            self.asked.insert(channel.clone(), *asking);
        }
    }

    fn heard(&mut self, now: Moment, notice: &Notice) {
        self.waiting_since = None;
        self.last_heard = now;
        match notice {
            Notice::Joined { channel } => {
                let asking = self.asked.remove(channel).unwrap_or(false);
                self.channels.insert(channel.clone(), asking);
            }
            Notice::Left { channel } | Notice::Refused { channel, .. } => {
                self.asked.remove(channel);
                self.channels.remove(channel);
            }
            Notice::Message { .. } => {}
        }
    }

    fn check(&self, now: Moment) -> Check {
        if self.waiting_since.is_some_and(|since| now.since(since) >= PATIENCE) {
            return Check::End(End::Lost);
        }
        match self.channels.iter().next() {
            None if now.since(self.last_order) >= IDLE => Check::End(End::Idle),
            Some((channel, asking)) if now.since(self.last_heard) >= SILENCE => Check::Ask(LinkOrder::Join {
                channel: channel.clone(),
                asking: *asking,
            }),
            _ => Check::Well,
        }
    }
}
