//! Asks a broker that refuses with "use another server" which one it means.
//!
//! rumqttc drops the properties of a CONNACK that refuses, and the reference is one of them. So the CONNECT goes out once
//! more on a connection of our own, and the answer is read with rumqttc's codec.

use std::sync::Arc;
use std::time::Duration;

use async_tungstenite::tungstenite::client::IntoClientRequest;
use async_tungstenite::tungstenite::http::HeaderValue;
use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, Connect, ConnectProperties, Disconnect, DisconnectReasonCode, Login, Packet,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use ws_stream_tungstenite::WsStream;

use super::address::{Address, Carrier};
use super::connection::Connection;

const PATIENCE: Duration = Duration::from_secs(5);
/// A CONNACK is not larger than this.
const LARGEST: u32 = 64 * 1024;

trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// The list of brokers that this one refers to.
pub(super) async fn reference(
    connection: &Connection,
    target: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> Option<String> {
    let answer = tokio::time::timeout(PATIENCE, ask(connection, target, tls)).await.ok()??;
    answer.properties?.server_reference
}

async fn ask(connection: &Connection, target: &Address, tls: Option<&Arc<ClientConfig>>) -> Option<ConnAck> {
    let mut stream = open(target, tls).await?;
    let mut bytes = BytesMut::new();
    connect(connection).write(&mut bytes, None).ok()?;
    stream.write_all(&bytes).await.ok()?;
    stream.flush().await.ok()?;
    bytes.clear();
    let connack = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        match Packet::read(&mut bytes, Some(LARGEST)) {
            Ok(Packet::ConnAck(connack)) => break connack,
            Err(rumqttc::v5::mqttbytes::Error::InsufficientBytes(_)) if bytes.len() < LARGEST as usize => {}
            _ => return None,
        }
    };
    // Should it let us in this time, it gets a proper goodbye.
    let mut goodbye = BytesMut::new();
    let disconnect = Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection));
    if disconnect.write(&mut goodbye, None).is_ok() {
        let _ = stream.write_all(&goodbye).await;
    }
    Some(connack)
}

fn connect(connection: &Connection) -> Packet {
    let properties = ConnectProperties {
        session_expiry_interval: Some(u32::try_from(connection.session.as_secs()).unwrap_or(u32::MAX)),
        ..ConnectProperties::new()
    };
    let connect = Connect {
        keep_alive: u16::try_from(connection.keep_alive.as_secs()).unwrap_or(u16::MAX),
        client_id: connection.client.clone(),
        clean_start: false,
        properties: Some(properties),
    };
    let login = connection
        .credentials
        .as_ref()
        .map(|(username, password)| Login { username: username.clone(), password: password.clone() });
    Packet::Connect(connect, None, login)
}

async fn open(target: &Address, tls: Option<&Arc<ClientConfig>>) -> Option<Box<dyn Bytes>> {
    let tcp = TcpStream::connect(format!("{}:{}", target.host, target.port)).await.ok()?;
    let stream: Box<dyn Bytes> = match (target.carrier.is_secure(), tls) {
        (false, _) => Box::new(tcp),
        (true, Some(config)) => {
            let name = ServerName::try_from(target.bare_host().to_owned()).ok()?;
            Box::new(TlsConnector::from(config.clone()).connect(name, tcp).await.ok()?)
        }
        (true, None) => return None,
    };
    match target.carrier {
        Carrier::Tcp | Carrier::Tls => Some(stream),
        Carrier::WebSocket | Carrier::SecureWebSocket => {
            let mut request = target.url().into_client_request().ok()?;
            request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
            let (socket, _) = async_tungstenite::tokio::client_async(request, stream).await.ok()?;
            Some(Box::new(WsStream::new(socket)))
        }
    }
}
