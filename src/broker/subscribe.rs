//! Subscribing and unsubscribing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Broker;
use super::group::Group;
use super::queue::{Extra, HoldPolicy};
use super::retained::Cursor;
use super::session::{PendingRetained, Session, State};
use super::topic;
use super::tree::{Subscription, Target};
use crate::config::Hold;
use crate::wire::{Filter, QoS, ReasonCode, RetainHandling};

impl Broker {
    /// Adds a subscription that was allowed, or replaces the one on the same filter.
    ///
    /// `window` is how many messages of a group the client may have at a time.
    pub(super) fn subscribe(
        &self,
        session: &Arc<Session>,
        state: &mut State,
        filter: &Filter,
        shared: bool,
        identifier: Option<u32>,
        window: usize,
    ) -> ReasonCode {
        let replaced = state.subscriptions.get(filter.path.as_str());
        let replaced_since = replaced.map(|subscription| subscription.since);
        if replaced.is_none() && state.subscriptions.len() >= self.settings.session.max_subscriptions {
            return ReasonCode::QUOTA_EXCEEDED;
        }
        let path: Arc<str> = filter.path.as_str().into();
        if shared {
            self.join_group(session, state, filter, path, identifier, window);
        } else {
            self.subscribe_alone(session, state, filter, path, identifier, replaced_since);
        }
        ReasonCode(filter.qos as u8)
    }

    fn subscribe_alone(
        &self,
        session: &Arc<Session>,
        state: &mut State,
        filter: &Filter,
        path: Arc<str>,
        identifier: Option<u32>,
        replaced_since: Option<u64>,
    ) {
        let extra =
            identifier.map(|identifier| Arc::new(Extra { identifiers: [identifier].into(), group: None }));
        let policy = match filter.qos {
            _ if self.never_holds(session, state, &path) => HoldPolicy::Never,
            QoS::AtMostOnce => HoldPolicy::Briefly,
            QoS::AtLeastOnce | QoS::ExactlyOnce => HoldPolicy::WhileProgress,
        };
        // see `Broker::retain`
        let store = self.retained.read();
        let now = self.next_ordinal();
        let subscription = Arc::new(Subscription {
            target: Target::Session(Arc::clone(session)),
            filter: Arc::clone(&path),
            qos: filter.qos,
            no_local: filter.no_local,
            retain_as_published: filter.retain_as_published,
            since: replaced_since.unwrap_or(now),
            extra: extra.clone(),
            policy,
        });
        self.insert(&path, &subscription);
        drop(store);
        let wanted = match filter.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => replaced_since.is_none(),
            RetainHandling::Never => false,
        };
        if wanted {
            let cursor = Cursor::new(Arc::clone(&path), now);
            state.retained.add(PendingRetained { cursor, qos: filter.qos, extra });
        }
        self.remember(session, state, path, subscription);
    }

    fn join_group(
        &self,
        session: &Arc<Session>,
        state: &mut State,
        filter: &Filter,
        path: Arc<str>,
        identifier: Option<u32>,
        window: usize,
    ) {
        let mut groups = self.groups.lock();
        let group = Arc::clone(groups.entry(Arc::clone(&path)).or_insert_with(|| self.new_group(&path)));
        group.join(session, filter.qos, identifier, window, self.clock.now(), &self.limits);
        drop(groups);
        let since = state.subscriptions.get(&path).map_or_else(|| self.next_ordinal(), |known| known.since);
        let subscription = Arc::new(Subscription {
            target: Target::Group(group),
            filter: plain_filter(&path).into(),
            qos: QoS::ExactlyOnce,
            no_local: false,
            retain_as_published: filter.retain_as_published,
            since,
            extra: None,
            // the group's queue holds, not the session's
            policy: HoldPolicy::Never,
        });
        self.insert_first_of_group(&path, &subscription);
        self.remember(session, state, path, subscription);
    }

    /// Its members are many, and one of them must not decide for all: of the rules about who never holds
    /// publishers, only those that name no client and no user count.
    fn new_group(&self, path: &Arc<str>) -> Arc<Group> {
        let group = Group::new(Arc::clone(path), self.next_group());
        let of_all = |rule: &&Hold| rule.user.is_none() && rule.client.is_none();
        if self.settings.queue.never_hold.iter().filter(of_all).any(|rule| excludes(rule, "", None, path)) {
            group.queue.set_policy(HoldPolicy::Never);
        }
        Arc::new(group)
    }

    fn remember(
        &self,
        session: &Session,
        state: &mut State,
        path: Arc<str>,
        subscription: Arc<Subscription>,
    ) {
        state.count(&subscription, false);
        if let Some(replaced) = state.subscriptions.insert(path, subscription) {
            state.count(&replaced, true);
        }
        session.queue.set_policy(state.hold_policy());
    }

    /// Removes a subscription; the code for its UNSUBACK.
    pub(super) fn unsubscribe(&self, session: &Arc<Session>, state: &mut State, path: &str) -> ReasonCode {
        let Some((path, subscription)) = state.subscriptions.remove_entry(path) else {
            return ReasonCode::NO_SUBSCRIPTION_EXISTED;
        };
        state.retained.forget(&path);
        state.count(&subscription, true);
        session.queue.set_policy(state.hold_policy());
        self.forget(session, &path, &subscription);
        ReasonCode::SUCCESS
    }

    /// Takes a subscription out of the tree, or its session out of the group.
    pub(super) fn forget(&self, session: &Arc<Session>, path: &str, subscription: &Arc<Subscription>) {
        if let Target::Group(group) = &subscription.target {
            let mut groups = self.groups.lock();
            if let Some(dropped) = group.leave(session.number, &self.limits) {
                self.stats.dropped_gone.add(dropped);
                return;
            }
            groups.remove(path);
            self.stats.dropped_gone.add(group.queue.clear());
        }
        self.tree.write().remove(plain_filter(path), subscription);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn insert(&self, path: &str, subscription: &Arc<Subscription>) {
        self.tree.write().insert(plain_filter(path), Arc::clone(subscription));
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// A group has one place in the tree, taken by its first member; messages before that are not for it.
    fn insert_first_of_group(&self, path: &str, subscription: &Arc<Subscription>) {
        let mut tree = self.tree.write();
        if !tree.contains(plain_filter(path), subscription) {
            tree.insert(plain_filter(path), Arc::clone(subscription));
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether the configuration says that this consumer never holds publishers.
    fn never_holds(&self, session: &Session, state: &State, path: &str) -> bool {
        let rules = &self.settings.queue.never_hold;
        rules.iter().any(|rule| excludes(rule, &session.client_id, state.user.as_deref(), path))
    }
}

fn plain_filter(path: &str) -> &str {
    topic::split_share(path).ok().flatten().map_or(path, |(_, plain)| plain)
}

fn excludes(rule: &Hold, client: &str, user: Option<&str>, filter: &str) -> bool {
    let fits = |pattern: &Option<String>, text: Option<&str>| match (pattern, text) {
        (None, _) => true,
        (Some(pattern), Some(text)) => topic::glob(pattern, text),
        (Some(_), None) => false,
    };
    fits(&rule.user, user) && fits(&rule.client, Some(client)) && fits(&rule.filter, Some(filter))
}
