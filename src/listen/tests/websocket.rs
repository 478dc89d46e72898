use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::certificates::{Authority, Client, Files};
use super::*;

type Answer = tokio_tungstenite::tungstenite::handshake::client::Response;

async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    io: S,
    protocols: Option<&str>,
) -> Result<(WebSocketStream<S>, Answer), WsError> {
    let mut request = "ws://localhost/mqtt".into_client_request().unwrap();
    if let Some(protocols) = protocols {
        request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
    }
    soon(client_async(request, io)).await
}

async fn connect(server: &Server) -> WebSocketStream<TcpStream> {
    upgrade(server.connect().await, Some("mqtt")).await.unwrap().0
}

async fn next<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Message {
    soon(socket.next()).await.unwrap().unwrap()
}

/// Reads binary frames until this many bytes came.
async fn collect<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    length: usize,
) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        match next(socket).await {
            Message::Binary(bytes) => all.extend_from_slice(&bytes),
            other => panic!("not binary: {other:?}"),
        }
    }
    all
}

#[tokio::test]
async fn the_sub_protocol_is_echoed_and_bytes_pass() {
    let mut server = Server::start(&on(Transport::Ws), None);
    let (mut socket, answer) = upgrade(server.connect().await, Some("mqttv3.1, mqtt")).await.unwrap();
    assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "mqtt");
    let seen = server.seen().await;
    assert_eq!((seen.transport, seen.certificate, seen.nodelay), (Transport::Ws, None, true));
    socket.send(Message::binary(b"hello".to_vec())).await.unwrap();
    assert_eq!(collect(&mut socket, 5).await, b"hello");
}

#[tokio::test]
async fn clients_that_do_not_offer_mqtt_get_400() {
    let server = Server::start(&on(Transport::Ws), None);
    for offer in [None, Some("mqttv3.1"), Some("MQTT"), Some("chat, mqtt5")] {
        match upgrade(server.connect().await, offer).await {
            Err(WsError::Http(answer)) => assert_eq!(answer.status(), 400, "{offer:?}"),
            other => panic!("{offer:?} gives {other:?}"),
        }
    }
    until("all being counted", || server.connections.counts().handshake_failed == 4).await;
}

#[tokio::test]
async fn what_is_no_websocket_request_is_refused() {
    let server = Server::start(&on(Transport::Ws), None);
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", &[b'x'; 100_000]]
    {
        let mut client = server.connect().await;
        let _ = client.write_all(bytes).await;
        client.shutdown().await.ok();
        let _ = soon(client.read_to_end(&mut Vec::new())).await;
    }
    until("all being counted", || server.connections.counts().handshake_failed == 3).await;
}

#[tokio::test]
async fn frames_need_not_be_packets() {
    let server = Server::start(&on(Transport::Ws), None);
    let mut socket = connect(&server).await;
    // One byte a frame, an empty frame, several packets in a frame, and a message of several frames.
    for byte in b"abc" {
        socket.feed(Message::binary(vec![*byte])).await.unwrap();
    }
    socket.feed(Message::binary(Vec::new())).await.unwrap();
    socket.feed(Message::binary(vec![b'd'; 5_000])).await.unwrap();
    let part = |text: &str, code, last| Message::Frame(Frame::message(text.to_owned(), code, last));
    socket.feed(part("e", OpCode::Data(Data::Binary), false)).await.unwrap();
    socket.feed(part("f", OpCode::Data(Data::Continue), true)).await.unwrap();
    socket.flush().await.unwrap();
    let mut expected = b"abc".to_vec();
    expected.extend([b'd'; 5_000]);
    expected.extend(b"ef");
    assert_eq!(collect(&mut socket, expected.len()).await, expected);
}

#[tokio::test]
async fn a_large_transfer_survives_back_pressure() {
    let server = Server::start(&on(Transport::Ws), None);
    let (mut write, mut read) = connect(&server).await.split();
    let sent: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    let sending = tokio::spawn({
        let chunks: Vec<_> = sent.chunks(100_000).map(<[u8]>::to_vec).collect();
        async move {
            for chunk in chunks {
                write.send(Message::binary(chunk)).await.unwrap();
            }
        }
    });
    let mut back = Vec::new();
    while back.len() < sent.len() {
        let frame = soon(read.next()).await.unwrap().unwrap().into_data();
        assert!(frame.len() <= 16 * 1024, "a frame of {} bytes", frame.len());
        back.extend_from_slice(&frame);
    }
    sending.await.unwrap();
    assert!(back == sent, "the bytes differ");
}

#[tokio::test]
async fn a_text_frame_closes() {
    let server = Server::start(&on(Transport::Ws), None);
    let mut socket = connect(&server).await;
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(close_code(&mut socket).await, Some(CloseCode::Unsupported));
    soon(server.connections.all_closed()).await;
}

#[tokio::test]
async fn frames_beyond_the_packet_size_close() {
    let server = Server::start(&on(Transport::Ws), None);
    let mut socket = connect(&server).await;
    let fits = vec![7; MAX_PACKET as usize];
    socket.send(Message::binary(fits.clone())).await.unwrap();
    assert_eq!(collect(&mut socket, fits.len()).await, fits);
    // The header alone, which announces 1 GB, is enough.
    socket.get_mut().write_all(&[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]).await.unwrap();
    assert_eq!(close_code(&mut socket).await, Some(CloseCode::Size));
    soon(server.connections.all_closed()).await;
}

#[tokio::test]
async fn endless_fragments_close() {
    let server = Server::start(&on(Transport::Ws), None);
    let mut socket = connect(&server).await;
    let fragment = |code| Message::Frame(Frame::message(vec![0; 60_000], OpCode::Data(code), false));
    let mut sent = socket.send(fragment(Data::Binary)).await;
    while sent.is_ok() {
        sent = soon(socket.send(fragment(Data::Continue))).await;
    }
    soon(server.connections.all_closed()).await;
}

async fn close_code(socket: &mut WebSocketStream<TcpStream>) -> Option<CloseCode> {
    match next(socket).await {
        Message::Close(frame) => frame.map(|frame| frame.code),
        other => panic!("not closed: {other:?}"),
    }
}

#[tokio::test]
async fn pings_are_answered() {
    let server = Server::start(&on(Transport::Ws), None);
    let mut socket = connect(&server).await;
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    assert_eq!(next(&mut socket).await, Message::Pong("are you there".into()));
    socket.send(Message::binary(b"x".to_vec())).await.unwrap();
    assert_eq!(collect(&mut socket, 1).await, b"x");
}

#[tokio::test]
async fn a_close_is_answered_and_ends_the_stream() {
    let server = Server::start(&on(Transport::Ws), None);
    let mut socket = connect(&server).await;
    let frame = CloseFrame { code: CloseCode::Normal, reason: "bye".into() };
    socket.send(Message::Close(Some(frame.clone()))).await.unwrap();
    assert_eq!(next(&mut socket).await, Message::Close(Some(frame)));
    assert!(soon(socket.next()).await.is_none());
    soon(server.connections.all_closed()).await;
}

#[tokio::test]
async fn a_client_that_just_goes_ends_the_stream() {
    let server = Server::start(&on(Transport::Ws), None);
    drop(connect(&server).await);
    soon(server.connections.all_closed()).await;
}

#[tokio::test]
async fn the_gateway_can_close() {
    let listeners = Listeners::bind(&on(Transport::Ws), None, MAX_PACKET).unwrap();
    let address = listeners.local_addresses()[0].1;
    let handler = |mut stream: Stream| async move {
        stream.write_all(b"last words").await.unwrap();
        stream.shutdown().await.unwrap();
    };
    tokio::spawn(listeners.run(handler, std::future::pending()));
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = upgrade(socket, Some("mqtt")).await.unwrap();
    assert_eq!(collect(&mut socket, 10).await, b"last words");
    assert!(matches!(next(&mut socket).await, Message::Close(_)));
}

#[tokio::test]
async fn secure_websocket_names_the_client() {
    let authority = Authority::new();
    let tls = Tls::load(&Files::signed_by(&authority).with_clients(true)).unwrap();
    let mut server = Server::start(&on(Transport::Wss), tls);
    let client = Client::trusting(&authority).showing(&authority, "browser");
    let secured = client.connect(server.address()).await.unwrap();
    let (mut socket, _) = upgrade(secured, Some("mqtt")).await.unwrap();
    socket.send(Message::binary(b"both".to_vec())).await.unwrap();
    assert_eq!(collect(&mut socket, 4).await, b"both");
    let seen = server.seen().await;
    assert_eq!((seen.transport, seen.certificate.as_deref()), (Transport::Wss, Some("browser")));
}
