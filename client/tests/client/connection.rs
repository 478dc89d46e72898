//! Transports, credentials, redirects.

use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, Disconnect, DisconnectProperties, DisconnectReasonCode, Packet, PingResp, Publish,
};
use tidegate_client::{Connection, Error, Publisher, Reconnect, Subscriber, Tls, Version};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::gateway::{Certificates, Gateway, PASSWORD, USER};
use crate::publishing::{connection, listener};
use crate::scripted::{Answer, Scripted, connack, resumed, usual};
use crate::{PLAYED, soon, until};

fn quick(connection: Connection) -> Connection {
    connection
        .reconnect(Reconnect::default().first(Duration::from_millis(50)).longest(Duration::from_millis(200)))
}

/// A message there and one back, over each transport, with both versions, logged in.
#[tokio::test]
async fn every_transport_and_version() {
    let certificates = Certificates::make();
    let gateway = Gateway::with(&[
        "listen.mqtt=127.0.0.1:0",
        "listen.ws=127.0.0.1:0",
        "listen.mqtts=127.0.0.1:0",
        "listen.wss=127.0.0.1:0",
        &format!("tls.certificate={}", certificates.certificate.display()),
        &format!("tls.key={}", certificates.key.display()),
    ]);
    for scheme in ["mqtt", "mqtts", "ws", "wss"] {
        for version in [Version::V5, Version::V311] {
            let url = format!("{scheme}://{}/mqtt", gateway.address(scheme));
            let name = format!("{scheme}-{version:?}");
            let connect = |id: &str| {
                let tls = Tls::authorities(certificates.authority.clone());
                connection(&url, &format!("{name}-{id}"))
                    .version(version)
                    .credentials(USER, PASSWORD)
                    .tls(tls)
            };
            let filter = format!("transport/{name}");
            let mut subscriber =
                Subscriber::builder(connect("in")).filter(&filter).passive_only().start().unwrap();
            let publisher = Publisher::builder(connect("out")).retain(true).start().unwrap();
            assert!(publisher.offer(&filter, name.as_str()));
            let update = soon(&name, subscriber.next()).await.unwrap();
            assert_eq!(update.payload, name);
            publisher.close().await;
            subscriber.close().await;
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_tried_again_but_not_fast() {
    let gateway = Gateway::start();
    let wrong = connection(&gateway.url(), "meter").credentials(USER, "guess");
    let publisher = Publisher::builder(quick(wrong)).start().unwrap();
    publisher.offer("t", 1);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((publisher.stats().connections, publisher.stats().waiting), (0, 1));
}

#[tokio::test]
async fn an_authority_that_is_not_trusted_gets_nothing() {
    let (certificates, others) = (Certificates::make(), Certificates::make());
    let gateway = Gateway::with(&[
        "listen.mqtts=127.0.0.1:0",
        &format!("tls.certificate={}", certificates.certificate.display()),
        &format!("tls.key={}", certificates.key.display()),
    ]);
    let url = format!("mqtts://{}", gateway.address("mqtts"));
    let stranger = connection(&url, "meter").tls(Tls::authorities(others.authority.clone()));
    let publisher = Publisher::builder(quick(stranger)).start().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(publisher.stats().connections, 0);
}

/// The CONNACK refuses and refers to another broker, for now (0x9C) and for good (0x9D).
#[tokio::test]
async fn a_broker_that_refers_to_another_at_once_is_followed() {
    for code in [ConnectReturnCode::UseAnotherServer, ConnectReturnCode::ServerMoved] {
        let gateway = Gateway::start();
        let mut updates = listener(&gateway.url(), "redirect/#").await;
        let other = gateway.address("mqtt").to_string();
        let first = Scripted::start(move |packet| match packet {
            Packet::Connect(..) => Some(Answer::close(connack(code, Some(other.clone())))),
            _ => None,
        })
        .await;
        let publisher = Publisher::builder(quick(connection(&first.url(), "meter"))).start().unwrap();
        publisher.offer_urgent("redirect/alarm", "followed").unwrap();
        assert_eq!(soon("the alarm", updates.next()).await.unwrap().payload, "followed");
        assert_eq!(first.connects(), 2, "one that was refused, one to ask for the reference");
    }
}

/// The broker disconnects later and refers to another one.
#[tokio::test]
async fn a_broker_that_sends_its_clients_away_is_followed_and_nothing_urgent_is_lost() {
    let gateway = Gateway::start();
    let mut updates = listener(&gateway.url(), "redirect/#").await;
    let other = format!("nowhere://x {}", gateway.address("mqtt"));
    let first = Scripted::start(move |packet| match packet {
        // Not acknowledged: the alarm must go again elsewhere.
        Packet::Publish(_) => Some(Answer::close(Packet::Disconnect(Disconnect {
            reason_code: DisconnectReasonCode::UseAnotherServer,
            properties: Some(DisconnectProperties {
                session_expiry_interval: None,
                reason_string: Some("maintenance".into()),
                user_properties: Vec::new(),
                server_reference: Some(other.clone()),
            }),
        }))),
        _ => None,
    })
    .await;
    let publisher = Publisher::builder(quick(connection(&first.url(), "meter"))).start().unwrap();
    for text in ["a", "b", "c"] {
        publisher.offer_urgent("redirect/alarm", text).unwrap();
    }
    for text in ["a", "b", "c"] {
        assert_eq!(soon("an alarm", updates.next()).await.unwrap().payload, text);
    }
    assert_eq!((first.connects(), first.payloads("redirect/alarm")), (1, vec!["a".to_owned()]));
}

/// `move` for those who know no redirect, both versions.
#[tokio::test]
async fn an_order_to_move_is_obeyed() {
    for version in [Version::V311, Version::V5] {
        let (old, new) = (Gateway::start(), Gateway::start());
        let mut updates = listener(&new.url(), "moved/#").await;
        let meter = quick(connection(&old.url(), "meter")).version(version);
        let publisher = Publisher::builder(meter).start().unwrap();
        until("a connection", || publisher.stats().connections == 1).await;
        let orders = Publisher::builder(connection(&old.url(), "orders")).start().unwrap();
        let order = format!(r#"{{"v":1,"server":"{}"}}"#, new.address("mqtt"));
        // Until it goes: the first order may come before its subscription.
        until("the move", || {
            orders.offer(&format!("{PLAYED}/move/meter"), order.as_str());
            publisher.stats().connections > 1
        })
        .await;
        publisher.offer_urgent("moved/alarm", "here").unwrap();
        assert_eq!(soon("the alarm", updates.next()).await.unwrap().payload, "here");
    }
}

/// Where a broker has no rules anybody may order a client to move: the stranger does not see who it is, unless it was named.
#[tokio::test]
async fn an_order_to_move_shows_no_credentials_to_strangers() {
    for trusted in [false, true] {
        let stranger = Scripted::start(|_| None).await;
        // The same machine by another name, so that it is another host.
        let to = format!("localhost:{}", stranger.address.port());
        let home = Scripted::start(move |packet| match packet {
            Packet::Subscribe(_) => {
                let order = format!(r#"{{"v":1,"server":"{to}"}}"#);
                let topic = format!("{PLAYED}/move/meter");
                let mut answer = usual(packet);
                answer.packets.push(Packet::Publish(Publish::new(topic, QoS::AtMostOnce, order, None)));
                Some(answer)
            }
            _ => None,
        })
        .await;
        let hosts = trusted.then_some("LOCALHOST");
        let meter = quick(connection(&home.url(), "meter")).credentials(USER, PASSWORD);
        let publisher = Publisher::builder(meter.trust_moves_to(hosts)).start().unwrap();
        until("the move", || stranger.connects() > 0).await;
        let logins = |broker: &Scripted| {
            let seen = broker.seen.lock();
            let logins = seen.iter().filter_map(|packet| match packet {
                Packet::Connect(_, _, login) => Some(login.is_some()),
                _ => None,
            });
            logins.collect::<Vec<_>>()
        };
        assert_eq!((logins(&home), logins(&stranger)), (vec![true], vec![trusted]));
        until("a connection", || publisher.is_connected()).await;
        assert_eq!(publisher.last_error().as_deref(), Some("ordered to move to another broker"));
    }
}

/// Another broker is gone, and the client is home again: what was under way there is no part of the session here.
#[tokio::test]
async fn the_session_of_another_broker_is_not_taken_for_that_at_home() {
    let away = Scripted::start(|packet| match packet {
        // It keeps what it gets to itself, and goes.
        Packet::Publish(_) => Some(Answer::close(Packet::PingResp(PingResp))),
        _ => None,
    })
    .await;
    let (to, mut times) = (away.address.to_string(), 0);
    let home = Scripted::start(move |packet| match packet {
        Packet::Connect(..) => {
            times += 1;
            let moved = connack(ConnectReturnCode::UseAnotherServer, Some(to.clone()));
            // It has a session of its own for this client, from before.
            Some(if times <= 2 { Answer::close(moved) } else { Answer::send([resumed()]) })
        }
        _ => None,
    })
    .await;
    let publisher = Publisher::builder(quick(connection(&home.url(), "meter"))).start().unwrap();
    publisher.offer_urgent("alarm", "x").unwrap();
    until("the alarm at the other one", || !away.payloads("alarm").is_empty()).await;
    drop(away);
    soon("the alarm", publisher.delivered()).await;
    let seen = home.seen.lock();
    let again = seen.iter().filter_map(|packet| match packet {
        Packet::Publish(publish) if publish.topic == "alarm" => Some(publish.dup),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), [false], "it is new here");
}

/// An order that leads nowhere: the client stays, and no program is shown what is not for it.
#[tokio::test]
async fn an_order_that_nobody_can_follow_is_ignored() {
    let gateway = Gateway::start();
    let mut updates = Subscriber::builder(connection(&gateway.url(), "screen"))
        .filter("after/#")
        .passive_only()
        .start()
        .unwrap();
    let publisher = Publisher::builder(connection(&gateway.url(), "meter")).start().unwrap();
    until("two connections", || updates.stats().connections + publisher.stats().connections == 2).await;
    let orders = Publisher::builder(connection(&gateway.url(), "orders")).start().unwrap();
    for order in [r#"{"v":1,"server":"ftp://nowhere"}"#, r#"{"v":1,"server":""}"#, "nonsense"] {
        for client in ["screen", "meter"] {
            orders.offer(&format!("{PLAYED}/move/{client}"), order);
            soon("the order", orders.delivered()).await;
        }
    }
    publisher.offer("after/all", "the orders");
    // Its own subscription may not have been in force before the first of them.
    let update = soon("an update", updates.next()).await.unwrap();
    assert_eq!((&*update.topic, update.payload), ("after/all", "the orders".into()));
    assert_eq!((updates.stats().connections, publisher.stats().connections), (1, 1));
}

/// Orders to move are asked for with QoS 0: whoever follows one can't acknowledge it, and would get it again when it is back.
#[tokio::test]
async fn nobody_owes_an_acknowledgement_for_an_order_to_move() {
    let broker = Scripted::start(|_| None).await;
    let _publisher = Publisher::builder(connection(&broker.url(), "meter")).start().unwrap();
    let _subscriber = Subscriber::builder(connection(&broker.url(), "screen")).filter("#").start().unwrap();
    let asked = || {
        let seen = broker.seen.lock();
        let filters = seen.iter().filter_map(|packet| match packet {
            Packet::Subscribe(subscribe) => Some(subscribe.filters.clone()),
            _ => None,
        });
        let orders = filters.flatten().filter(|filter| filter.path.starts_with(&format!("{PLAYED}/move/")));
        orders.map(|filter| filter.qos).collect::<Vec<_>>()
    };
    until("two subscriptions", || asked().len() == 2).await;
    assert_eq!(asked(), [QoS::AtMostOnce; 2]);
}

/// A broker that accepts and then takes no more bytes, as behind a cable that was pulled while the socket was full: no
/// ping can be sent that would not be answered.
#[tokio::test]
async fn a_network_that_takes_nothing_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut stuck = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = BytesMut::new();
            connack(ConnectReturnCode::Success, None).write(&mut bytes, None).unwrap();
            stream.write_all(&bytes).await.unwrap();
            stuck.push(stream);
        }
    });
    let keep_alive = quick(connection(&url, "meter")).keep_alive(Duration::from_secs(5));
    let publisher = Publisher::builder(keep_alive).buffer(100, 100_000_000).start().unwrap();
    for topic in 0..16 {
        assert!(publisher.offer(&format!("t/{topic}"), vec![0; 1_000_000]));
    }
    until("another connection", || publisher.stats().connections > 1).await;
}

/// Whoever does not want to be led away is not.
#[tokio::test]
async fn redirects_can_be_refused_and_loops_end() {
    let decoy = Scripted::start(|_| None).await;
    let other = decoy.address.to_string();
    let first = Scripted::start(move |packet| match packet {
        Packet::Connect(..) => {
            Some(Answer::close(connack(ConnectReturnCode::ServerMoved, Some(other.clone()))))
        }
        _ => None,
    })
    .await;
    let stay = quick(connection(&first.url(), "meter")).follow_redirects(false);
    let _publisher = Publisher::builder(stay).start().unwrap();
    until("three attempts", || first.connects() >= 3).await;
    assert_eq!(decoy.connects(), 0);
    // One that refers to itself for ever is left alone between attempts.
    let own = std::sync::Arc::new(Mutex::new(String::new()));
    let reference = own.clone();
    let narcissus = Scripted::start(move |packet| match packet {
        Packet::Connect(..) => {
            let reference = reference.lock().clone();
            Some(Answer::close(connack(ConnectReturnCode::UseAnotherServer, Some(reference))))
        }
        _ => None,
    })
    .await;
    *own.lock() = narcissus.address.to_string();
    let publisher = Publisher::builder(quick(connection(&narcissus.url(), "meter"))).start().unwrap();
    until("some attempts", || narcissus.connects() >= 6).await;
    assert_eq!(publisher.stats().connections, 0);
}

/// Packets that no broker should send do not end the client.
#[tokio::test]
async fn a_broker_that_talks_nonsense_is_survived() {
    let mut times = 0;
    let broker = Scripted::start(move |packet| {
        times += 1;
        match packet {
            Packet::Publish(publish) if times < 12 => {
                let mut odd = Publish::new(format!("{PLAYED}/rate"), QoS::AtMostOnce, vec![0xFF; 100], None);
                odd.retain = true;
                let ack = |pkid| Packet::PubAck(rumqttc::v5::mqttbytes::v5::PubAck::new(pkid, None));
                Some(Answer::send([Packet::Publish(odd), ack(publish.pkid ^ 0x5555)]))
            }
            _ => None,
        }
    })
    .await;
    let publisher = Publisher::builder(quick(connection(&broker.url(), "meter"))).start().unwrap();
    publisher.offer_urgent("alarm", "x").unwrap();
    soon("delivery after all", publisher.delivered()).await;
    assert!(publisher.stats().nonsense > 0 && publisher.stats().connections > 1);
    assert!(publisher.stats().is_conserved());
}

#[tokio::test]
async fn mistakes_in_settings_are_named() {
    assert!(matches!(Connection::new("http://x", "c"), Err(Error::Address { .. })));
    assert!(matches!(Connection::new("mqtt://x", "a/b"), Err(Error::Name { .. })));
    let good = || connection("mqtt://localhost", "c");
    let setting = |error: Error| match error {
        Error::Setting { key, .. } => key,
        other => panic!("{other}"),
    };
    assert_eq!(setting(Publisher::builder(good()).rate(0.0).start().unwrap_err()), "rate");
    assert_eq!(setting(Publisher::builder(good()).growth(1.0).start().unwrap_err()), "growth");
    assert_eq!(setting(Publisher::builder(good()).deadband(f64::NAN).start().unwrap_err()), "deadband");
    let steep = good().reconnect(Reconnect::default().growth(0.5));
    assert_eq!(setting(Publisher::builder(steep).start().unwrap_err()), "reconnect.growth");
    assert!(matches!(Publisher::builder(good()).class("+").start(), Err(Error::Name { .. })));
    assert_eq!(setting(Subscriber::builder(good()).start().unwrap_err()), "filters");
    for filter in ["", "a/#/b", "a+", "#/", "nul\0", "$share/group", "$share/+/a", "$share/g/a#"] {
        let subscriber = Subscriber::builder(good()).filter("fine").filter(filter).start();
        assert!(matches!(subscriber, Err(Error::Name { what: "filter", .. })), "{filter}");
    }
    for filter in ["a/#", "+/a", "$share/g/a/+", "$SYS/#"] {
        assert!(Subscriber::builder(good()).filter(filter).start().is_ok(), "{filter}");
    }
    let busy = Subscriber::builder(good()).filter("a").most_checks(0.0).start().unwrap_err();
    assert_eq!(setting(busy), "most_checks");
    let secret = format!("{:?}", good().credentials("user", "hidden"));
    assert!(!secret.contains("hidden"), "{secret}");
}
