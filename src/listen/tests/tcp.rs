use super::*;

#[tokio::test]
async fn bytes_pass_and_the_peer_is_known() {
    let mut server = Server::start(&on(Transport::Mqtt), None);
    let mut client = server.connect().await;
    assert_echoes(&mut client, "hello").await;
    let peer = client.local_addr().unwrap();
    let expected = Seen { transport: Transport::Mqtt, peer, certificate: None, nodelay: true };
    assert_eq!(server.seen().await, expected);
}

#[tokio::test]
async fn ipv6_works_beside_ipv4_on_the_same_port() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // this machine has no IPv6
    }
    let four = ListenSettings { mqtt: vec!["0.0.0.0:0".parse().unwrap()], ..on(Transport::Mqtt) };
    let four = Server::start(&four, None);
    let port = four.address().port();
    let six = ListenSettings { mqtt: vec![format!("[::]:{port}").parse().unwrap()], ..on(Transport::Mqtt) };
    let mut six = Server::start(&six, None);
    let mut client = TcpStream::connect(("::1", port)).await.unwrap();
    assert_echoes(&mut client, "six").await;
    assert_eq!(six.seen().await.peer, client.local_addr().unwrap());
    let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert_echoes(&mut client, "four").await;
}

#[tokio::test]
async fn several_listeners_serve_together() {
    let any = "127.0.0.1:0".parse().unwrap();
    let settings = ListenSettings { mqtt: vec![any, any], ws: vec![any], ..ListenSettings::default() };
    let server = Server::start(&settings, None);
    let kinds: Vec<_> = server.addresses.iter().map(|(transport, _)| *transport).collect();
    assert_eq!(kinds, [Transport::Mqtt, Transport::Mqtt, Transport::Ws]);
    for (_, address) in &server.addresses[..2] {
        assert_echoes(&mut TcpStream::connect(address).await.unwrap(), "hello").await;
    }
}

#[tokio::test]
async fn an_address_in_use_says_what_to_do() {
    let server = Server::start(&on(Transport::Mqtt), None);
    let taken = server.address();
    let settings = ListenSettings { mqtt: vec![taken], ..on(Transport::Mqtt) };
    let error = Listeners::bind(&settings, None, MAX_PACKET).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {taken} (`listen.mqtt`)")), "{error}");
    assert!(error.contains("already listens there: stop it, or choose another port"), "{error}");
}

#[tokio::test]
async fn an_address_of_another_machine_says_what_to_do() {
    let settings = ListenSettings { mqtt: vec!["192.0.2.1:0".parse().unwrap()], ..on(Transport::Mqtt) };
    let error = Listeners::bind(&settings, None, MAX_PACKET).unwrap_err().to_string();
    assert!(error.contains("this machine has no address 192.0.2.1"), "{error}");
}

#[tokio::test]
async fn secure_listeners_need_a_certificate() {
    for transport in [Transport::Mqtts, Transport::Wss] {
        let error = Listeners::bind(&on(transport), None, MAX_PACKET).unwrap_err().to_string();
        assert!(error.contains(&format!("`listen.{transport}` needs a certificate")), "{error}");
    }
}

#[tokio::test]
async fn over_the_limit_connections_are_closed_and_counted() {
    let server = Server::start(&ListenSettings { max_connections: 2, ..on(Transport::Mqtt) }, None);
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_echoes(&mut first, "1").await;
    assert_echoes(&mut second, "2").await;
    assert!(is_closed(&mut server.connect().await).await);
    assert_eq!(server.connections.open(), 2);
    drop(first);
    until("the place of the first coming back", || server.connections.open() == 1).await;
    assert_echoes(&mut server.connect().await, "4").await;
    let counts = server.connections.counts();
    assert_eq!((counts.accepted, counts.over_limit), (3, 1));
}

#[tokio::test]
async fn one_address_that_connects_too_fast_is_turned_away() {
    let server = Server::start(&ListenSettings { max_accept_rate: 1, ..on(Transport::Mqtt) }, None);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(server.connect().await);
    }
    let counts = || server.connections.counts();
    until("all being looked at", || counts().accepted + counts().over_rate == 20).await;
    assert!(counts().accepted >= 1 && counts().over_rate >= 1, "{:?}", counts());
    assert_echoes(&mut clients[0], "the first one is in").await;
}

#[tokio::test]
async fn after_the_shutdown_open_connections_go_on_and_new_ones_fail() {
    let mut server = Server::start(&on(Transport::Mqtt), None);
    let mut client = server.connect().await;
    assert_echoes(&mut client, "before").await;
    server.stop().await;
    assert_echoes(&mut client, "after").await;
    assert!(TcpStream::connect(server.address()).await.is_err());
    drop(client);
    soon(server.connections.all_closed()).await;
}

#[tokio::test]
async fn a_burst_of_connections_is_served() {
    let server = Server::start(&on(Transport::Mqtt), None);
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        clients.push(server.connect().await);
    }
    for client in &mut clients {
        assert_echoes(client, "x").await;
    }
    assert_eq!(server.connections.open(), 1_000);
    drop(clients);
    soon(server.connections.all_closed()).await;
}

#[tokio::test]
async fn a_handler_that_panics_gives_its_place_back() {
    let listeners = Listeners::bind(&on(Transport::Mqtt), None, MAX_PACKET).unwrap();
    let (address, connections) = (listeners.local_addresses()[0].1, listeners.connections());
    let handler = |_: Stream| async { panic!("on purpose") };
    tokio::spawn(listeners.run(handler, std::future::pending()));
    assert!(is_closed(&mut TcpStream::connect(address).await.unwrap()).await);
    soon(connections.all_closed()).await;
    assert_eq!(connections.counts().accepted, 1);
}
