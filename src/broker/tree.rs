//! The topic tree: which subscriptions match a topic.
//!
//! A trie over the levels of filters, in a slab: topics and filters of any depth are walked without recursion.

use std::collections::HashMap;
use std::sync::Arc;

use super::group::Group;
use super::message::Message;
use super::queue::{Extra, HoldPolicy, Queue};
use super::session::Session;
use crate::wire::QoS;

/// A subscription as the dispatchers see it.
#[derive(Debug)]
pub struct Subscription {
    /// Who gets the messages.
    pub target: Target,
    /// The filter, without `$share/group/`.
    pub filter: Arc<str>,
    /// Most QoS to deliver with.
    pub qos: QoS,
    /// Not what the subscriber itself published.
    pub no_local: bool,
    /// Keep the retain flag.
    pub retain_as_published: bool,
    /// Messages accepted before this moment are not for it (see `Broker::next_ordinal`).
    pub since: u64,
    /// Its subscription identifier, where it has one.
    pub extra: Option<Arc<Extra>>,
    /// Whom the session's queue may hold because of it.
    pub policy: HoldPolicy,
}

/// Who gets the messages of a subscription.
#[derive(Debug)]
pub enum Target {
    /// One session.
    Session(Arc<Session>),
    /// Any member of a group.
    Group(Arc<Group>),
}

impl Subscription {
    /// Where its messages wait.
    pub fn queue(&self) -> &Queue {
        match &self.target {
            Target::Session(session) => &session.queue,
            Target::Group(group) => &group.queue,
        }
    }

    /// Whether a message that matches its filter is for it.
    pub fn wants(&self, message: &Message) -> bool {
        message.ordinal >= self.since && !self.leaves_out(message.publisher)
    }

    /// Whether it wants no messages of this publisher: its own.
    pub fn leaves_out(&self, publisher: u64) -> bool {
        self.no_local && matches!(&self.target, Target::Session(session) if session.number == publisher)
    }

    /// The name of the target, for people.
    pub fn consumer(&self) -> &str {
        match &self.target {
            Target::Session(session) => &session.client_id,
            Target::Group(group) => &group.path,
        }
    }

    /// The number of the target, unique among all.
    pub fn number(&self) -> u64 {
        match &self.target {
            Target::Session(session) => session.number,
            Target::Group(group) => group.number,
        }
    }
}

impl Subscribed for Subscription {
    fn key(&self) -> (bool, usize) {
        match &self.target {
            Target::Session(session) => (false, session.number as usize),
            Target::Group(group) => (true, Arc::as_ptr(group) as usize),
        }
    }
}

/// What a tree holds.
pub trait Subscribed {
    /// Identifies who gets the messages among all.
    fn key(&self) -> (bool, usize);
}

/// All subscriptions.
#[derive(Debug)]
pub struct Tree<S = Subscription> {
    nodes: Vec<Node<S>>,
    free: Vec<u32>,
    count: usize,
}

#[derive(Debug)]
struct Node<S> {
    children: HashMap<Box<str>, u32>,
    /// Child for `+`; 0 is none (the root is nobody's child).
    plus: u32,
    parent: u32,
    /// Subscriptions that end here, and those that end with `/#` here.
    exact: Vec<Arc<S>>,
    below: Vec<Arc<S>>,
}

// derived, it would ask for `S: Default`
impl<S> Default for Node<S> {
    fn default() -> Self {
        Self { children: HashMap::new(), plus: 0, parent: 0, exact: Vec::new(), below: Vec::new() }
    }
}

const ROOT: u32 = 0;

impl<S> Default for Tree<S> {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], free: Vec::new(), count: 0 }
    }
}

impl<S: Subscribed> Tree<S> {
    /// Adds a subscription; one of the same target on the same filter is replaced.
    pub fn insert(&mut self, filter: &str, subscription: Arc<S>) {
        let (path, below) = split_hash(filter);
        let mut at = ROOT;
        for level in path {
            at = self.child_or_new(at, level);
        }
        let list = self.nodes[at as usize].list(below);
        match list.iter_mut().find(|known| known.key() == subscription.key()) {
            Some(known) => *known = subscription,
            None => {
                list.push(subscription);
                self.count += 1;
            }
        }
    }

    /// Removes a subscription, and the nodes that only it needed.
    pub fn remove(&mut self, filter: &str, subscription: &Arc<S>) {
        let (path, below) = split_hash(filter);
        let mut at = ROOT;
        for level in path {
            match self.child(at, level) {
                Some(child) => at = child,
                None => return,
            }
        }
        let list = self.nodes[at as usize].list(below);
        let before = list.len();
        list.retain(|known| known.key() != subscription.key());
        list.shrink_to_fit();
        self.count -= before - list.len();
        self.prune(at, filter);
    }

    /// Whether the same target is there on this filter.
    pub fn contains(&self, filter: &str, subscription: &S) -> bool {
        let (path, below) = split_hash(filter);
        let mut at = ROOT;
        for level in path {
            match self.child(at, level) {
                Some(child) => at = child,
                None => return false,
            }
        }
        let node = &self.nodes[at as usize];
        let list = if below { &node.below } else { &node.exact };
        list.iter().any(|known| known.key() == subscription.key())
    }

    /// Calls `found` for every subscription that matches a topic.
    pub fn each_match(&self, topic: &str, mut found: impl FnMut(&Arc<S>)) {
        let system = topic.starts_with('$');
        // what is left of the topic at each node still to be visited; None is past its end
        let mut open: Vec<(u32, Option<&str>)> = vec![(ROOT, Some(topic))];
        while let Some((at, rest)) = open.pop() {
            let node = &self.nodes[at as usize];
            let wild = at != ROOT || !system;
            if wild {
                node.below.iter().for_each(&mut found);
            }
            let Some(rest) = rest else {
                node.exact.iter().for_each(&mut found);
                continue;
            };
            let (level, rest) = match rest.split_once('/') {
                Some((level, rest)) => (level, Some(rest)),
                None => (rest, None),
            };
            if node.plus != 0 && wild {
                open.push((node.plus, rest));
            }
            if let Some(child) = node.children.get(level) {
                open.push((*child, rest));
            }
        }
    }

    /// How many subscriptions there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn child(&self, at: u32, level: &str) -> Option<u32> {
        let node = &self.nodes[at as usize];
        match level {
            "+" => (node.plus != 0).then_some(node.plus),
            _ => node.children.get(level).copied(),
        }
    }

    fn child_or_new(&mut self, at: u32, level: &str) -> u32 {
        if let Some(child) = self.child(at, level) {
            return child;
        }
        let node = Node { parent: at, ..Node::default() };
        let child = match self.free.pop() {
            Some(free) => {
                self.nodes[free as usize] = node;
                free
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let parent = &mut self.nodes[at as usize];
        match level {
            "+" => parent.plus = child,
            _ => {
                parent.children.insert(level.into(), child);
            }
        }
        child
    }

    /// Frees a node and its ancestors while they hold nothing.
    fn prune(&mut self, mut at: u32, filter: &str) {
        let (path, _) = split_hash(filter);
        let levels: Vec<&str> = path.collect();
        for level in levels.into_iter().rev() {
            let node = &self.nodes[at as usize];
            if !node.is_empty() {
                return;
            }
            let parent = node.parent;
            match level {
                "+" => self.nodes[parent as usize].plus = 0,
                _ => {
                    let children = &mut self.nodes[parent as usize].children;
                    children.remove(level);
                    if children.is_empty() {
                        *children = HashMap::new();
                    }
                }
            }
            self.nodes[at as usize] = Node::default();
            self.free.push(at);
            at = parent;
        }
    }
}

impl<S> Node<S> {
    fn list(&mut self, below: bool) -> &mut Vec<Arc<S>> {
        if below { &mut self.below } else { &mut self.exact }
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.plus == 0 && self.exact.is_empty() && self.below.is_empty()
    }
}

/// The levels before a final `#`, and whether there is one.
fn split_hash(filter: &str) -> (impl Iterator<Item = &str>, bool) {
    let (path, below) = match filter.strip_suffix('#') {
        Some("") => (None, true),
        Some(path) => (path.strip_suffix('/'), true),
        None => (Some(filter), false),
    };
    (path.into_iter().flat_map(|path| path.split('/')), below)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::topic;
    use super::*;

    fn subscription(session: &Arc<Session>) -> Arc<Subscription> {
        Arc::new(Subscription {
            filter: "".into(),
            target: Target::Session(Arc::clone(session)),
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            since: 0,
            extra: None,
            policy: HoldPolicy::Never,
        })
    }

    fn sessions(count: u64) -> Vec<Arc<Session>> {
        (0..count).map(|number| Arc::new(Session::new(number, number.to_string().into()))).collect()
    }

    fn found(tree: &Tree, topic: &str) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        tree.each_match(topic, |subscription| {
            found.insert(subscription.key().1);
        });
        found
    }

    #[test]
    fn a_very_deep_filter_is_walked_and_forgotten() {
        let mut tree = Tree::default();
        let subscription = subscription(&sessions(1)[0]);
        let deep = "/".repeat(65_535);
        tree.insert(&deep, Arc::clone(&subscription));
        assert_eq!(found(&tree, &deep).len(), 1);
        tree.remove(&deep, &subscription);
        assert_eq!((tree.len(), tree.free.len() + 1), (0, tree.nodes.len()));
    }

    fn levels(alphabet: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(alphabet), 1..5).prop_map(|levels| levels.join("/"))
    }

    proptest! {
        /// The tree finds what matching filter by filter finds, whatever was added and removed before.
        #[test]
        fn it_agrees_with_matching_one_by_one(
            steps in prop::collection::vec((any::<bool>(), 0..5_usize, levels(&["a", "b", "+", "", "$x", "#"])), 1..60),
            topics in prop::collection::vec(levels(&["a", "b", "c", "", "$x"]), 1..10),
        ) {
            let sessions = sessions(5);
            let subscriptions: Vec<_> = sessions.iter().map(subscription).collect();
            let mut tree = Tree::default();
            let mut model: BTreeSet<(String, usize)> = BTreeSet::new();
            for (add, who, filter) in steps {
                if !topic::valid_filter(&filter) {
                    continue;
                }
                if add {
                    tree.insert(&filter, Arc::clone(&subscriptions[who]));
                    model.insert((filter, who));
                } else {
                    tree.remove(&filter, &subscriptions[who]);
                    model.remove(&(filter, who));
                }
                prop_assert_eq!(tree.len(), model.len());
            }
            for topic in topics {
                let expected: BTreeSet<usize> =
                    model.iter().filter(|(filter, _)| topic::matches(filter, &topic)).map(|(_, who)| *who).collect();
                prop_assert_eq!(found(&tree, &topic), expected, "{}", topic);
            }
            for (filter, who) in model {
                tree.remove(&filter, &subscriptions[who]);
            }
            prop_assert_eq!(tree.free.len() + 1, tree.nodes.len(), "every node but the root is free again");
        }
    }
}
