use super::certificates::{Authority, Client, Files};
use super::*;

fn start(settings: &TlsSettings) -> (Server, Tls) {
    let tls = Tls::load(settings).unwrap().unwrap();
    (Server::start(&on(Transport::Mqtts), Some(tls.clone())), tls)
}

#[tokio::test]
async fn both_versions_of_tls_work() {
    let authority = Authority::new();
    let (mut server, _) = start(&Files::signed_by(&authority).settings());
    for client in [Client::trusting(&authority), Client::trusting(&authority).old()] {
        let mut client = client.connect(server.address()).await.unwrap();
        assert_echoes(&mut client, "secret").await;
        let seen = server.seen().await;
        assert_eq!((seen.transport, seen.certificate, seen.nodelay), (Transport::Mqtts, None, true));
        client.shutdown().await.unwrap();
        assert!(is_closed(&mut client).await);
    }
}

#[tokio::test]
async fn a_client_certificate_is_optional_and_named() {
    let authority = Authority::new();
    let (mut server, _) = start(&Files::signed_by(&authority).with_clients(false));
    let mut anonymous = Client::trusting(&authority).connect(server.address()).await.unwrap();
    assert_echoes(&mut anonymous, "1").await;
    assert_eq!(server.seen().await.certificate, None);
    let named = Client::trusting(&authority).showing(&authority, "pump-7");
    let mut named = named.connect(server.address()).await.unwrap();
    assert_echoes(&mut named, "2").await;
    assert_eq!(server.seen().await.certificate.as_deref(), Some("pump-7"));
}

#[tokio::test]
async fn a_required_client_certificate_is_required() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (mut server, _) = start(&Files::signed_by(&authority).with_clients(true));
    for client in [Client::trusting(&authority), Client::trusting(&authority).showing(&stranger, "thief")] {
        // With TLS 1.3 the client only learns from its first read that it was refused.
        if let Ok(mut client) = client.connect(server.address()).await {
            assert!(is_closed(&mut client).await);
        }
    }
    until("both being refused", || server.connections.counts().handshake_failed == 2).await;
    assert!(server.seen.try_recv().is_err());
    let named = Client::trusting(&authority).showing(&authority, "pump-7");
    assert_echoes(&mut named.connect(server.address()).await.unwrap(), "in").await;
}

#[tokio::test]
async fn certificates_are_read_again_for_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = Files::signed_by(&old);
    let (server, tls) = start(&files.settings());
    let mut before = Client::trusting(&old).connect(server.address()).await.unwrap();
    files.replace(&new);
    tls.reload().unwrap();
    assert!(Client::trusting(&old).connect(server.address()).await.is_err());
    let mut after = Client::trusting(&new).connect(server.address()).await.unwrap();
    assert_echoes(&mut after, "new").await;
    assert_echoes(&mut before, "open connections go on").await;
}

#[tokio::test]
async fn a_bad_certificate_is_refused_and_the_old_one_stays() {
    let authority = Authority::new();
    let files = Files::signed_by(&authority);
    let (server, tls) = start(&files.settings());
    files.write("server.pem", "not a certificate");
    let error = tls.reload().unwrap_err().to_string();
    assert!(error.contains("server.pem (`tls.certificate`): it holds no PEM certificate"), "{error}");
    let mut client = Client::trusting(&authority).connect(server.address()).await.unwrap();
    assert_echoes(&mut client, "still here").await;
}

#[tokio::test]
async fn a_client_that_is_slow_to_shake_hands_blocks_nobody_and_is_dropped() {
    let authority = Authority::new();
    let tls = Tls::load(&Files::signed_by(&authority).settings()).unwrap();
    let settings = ListenSettings { connect_timeout: 1, ..on(Transport::Mqtts) };
    let server = Server::start(&settings, tls);
    let mut silent = server.connect().await;
    let mut client = Client::trusting(&authority).connect(server.address()).await.unwrap();
    assert_echoes(&mut client, "meanwhile").await;
    assert!(is_closed(&mut silent).await);
    until("the failure being counted", || server.connections.counts().handshake_failed == 1).await;
    assert_echoes(&mut client, "still here").await;
}

#[tokio::test]
async fn plain_bytes_on_a_tls_port_are_refused() {
    let authority = Authority::new();
    let (server, _) = start(&Files::signed_by(&authority).settings());
    let mut client = server.connect().await;
    client.write_all(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00").await.unwrap();
    let mut answer = Vec::new();
    let _ = soon(client.read_to_end(&mut answer)).await;
    until("the failure being counted", || server.connections.counts().handshake_failed == 1).await;
}

#[test]
fn without_a_certificate_there_is_no_tls() {
    assert!(Tls::load(&TlsSettings::default()).unwrap().is_none());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let files = Files::signed_by(&authority);
    let error = |settings: TlsSettings| Tls::load(&settings).unwrap_err().to_string();

    let missing = TlsSettings { certificate: Some(files.path("nowhere.pem")), ..files.settings() };
    assert!(error(missing).contains("nowhere.pem (`tls.certificate`): No such file"));

    let swapped = TlsSettings { key: files.settings().certificate, ..files.settings() };
    assert!(error(swapped).contains("server.pem (`tls.key`): it holds no PEM private key"));

    files.write("other.key", &authority.sign("other", &[]).1.serialize_pem());
    let misfit = TlsSettings { key: Some(files.path("other.key")), ..files.settings() };
    assert!(error(misfit).contains("do not fit together"));

    let no_key = TlsSettings { key: None, ..files.settings() };
    assert!(error(no_key).contains("`tls.certificate` needs `tls.key`"));

    files.write("empty.pem", "");
    let no_authority = TlsSettings { client_ca: Some(files.path("empty.pem")), ..files.settings() };
    assert!(error(no_authority).contains("empty.pem (`tls.client_ca`): it holds no PEM certificate"));

    let nobody = TlsSettings { require_client_certificate: true, ..files.settings() };
    assert!(error(nobody).contains("needs `tls.client_ca`"));
}
