//! MQTT over WebSocket: the sub-protocol handshake, and binary frames as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Error as WsError, error::ProtocolError};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

const SUB_PROTOCOL: &str = "mqtt";

/// Bytes of one outgoing frame. The frame buffer keeps its capacity while the connection is idle, hence small.
const MAX_OUT_FRAME: usize = 16 * 1024;

/// Bytes read from the socket at a time, allocated for as long as the connection lasts.
const READ_BUFFER: usize = 4 * 1024;

/// A frame may hold several packets: the largest one and this much beside it.
const FRAME_SLACK: usize = 64 * 1024;

const TEXT_FRAME: &str = "text frame: MQTT needs binary frames";

/// Binary WebSocket frames as a stream of bytes.
pub(super) struct WebSocket<S> {
    socket: WebSocketStream<S>,
    /// What is left of the frame being read.
    rest: Bytes,
    /// Whether nothing more can be read.
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Does the server's part of the handshake; the client must offer the sub-protocol `mqtt`.
    pub(super) async fn accept(io: S, max_packet_size: usize) -> Result<Self, WsError> {
        let socket = accept_hdr_async_with_config(io, choose_protocol, Some(config(max_packet_size))).await?;
        Ok(Self { socket, rest: Bytes::new(), ended: false })
    }

    pub(super) fn get_ref(&self) -> &S {
        self.socket.get_ref()
    }

    /// Makes `rest` non-empty, or finds that there is no more.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() && !self.ended {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                // [MQTT-6.0.0-1]
                Some(Ok(Message::Text(_))) => {
                    self.close(cx, CloseCode::Unsupported, TEXT_FRAME);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, TEXT_FRAME)));
                }
                // The answers to these are sent by the next read or write.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) => {
                    self.ended = true;
                    let _ = Pin::new(&mut self.socket).poll_flush(cx);
                }
                Some(Err(WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake))) | None => {
                    self.ended = true;
                }
                Some(Err(error)) => {
                    match error {
                        WsError::Capacity(_) => self.close(cx, CloseCode::Size, "frame too large"),
                        WsError::Protocol(_) => self.close(cx, CloseCode::Protocol, "bad frame"),
                        _ => self.ended = true,
                    }
                    return Poll::Ready(Err(into_io(error)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads no more and says why, if the socket takes it now.
    fn close(&mut self, cx: &mut Context<'_>, code: CloseCode, reason: &'static str) {
        self.ended = true;
        let frame = CloseFrame { code, reason: reason.into() };
        if Pin::new(&mut self.socket).start_send(Message::Close(Some(frame))).is_ok() {
            let _ = Pin::new(&mut self.socket).poll_flush(cx);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(cx))?;
        let length = self.rest.len().min(to.remaining());
        to.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        if self.rest.is_empty() {
            // An empty `Bytes` may still hold on to the buffer of its frame.
            self.rest = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if from.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // Ready only when all earlier frames are with the kernel: at most one frame is ever buffered here.
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(into_io)?;
        let length = from.len().min(MAX_OUT_FRAME);
        let message = Message::Binary(Bytes::copy_from_slice(&from[..length]));
        Pin::new(&mut self.socket).start_send(message).map_err(into_io)?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(into_io)
    }

    /// Sends a close frame and ends the connection without waiting for the answer, which may never come.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_close(cx)).map_err(into_io)?;
        Pin::new(self.socket.get_mut()).poll_shutdown(cx)
    }
}

fn config(max_packet_size: usize) -> WebSocketConfig {
    let max_in = max_packet_size.saturating_add(FRAME_SLACK);
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_OUT_FRAME)
        .max_frame_size(Some(max_in))
        .max_message_size(Some(max_in))
}

/// Echoes `mqtt` when the client offers it and refuses the client otherwise ([MQTT-6.0.0-3], [MQTT-6.0.0-4]).
// The signature is tungstenite's.
#[allow(clippy::result_large_err)]
fn choose_protocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    if offers_mqtt(request.headers()) {
        let value = HeaderValue::from_static(SUB_PROTOCOL);
        response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        return Ok(response);
    }
    let body = "the WebSocket sub-protocol `mqtt` must be offered\n".to_owned();
    let mut refusal = ErrorResponse::new(None);
    *refusal.status_mut() = StatusCode::BAD_REQUEST;
    let headers = refusal.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *refusal.body_mut() = Some(body);
    Err(refusal)
}

/// Sub-protocols may come as a list, in several headers, or both.
fn offers_mqtt(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim() == SUB_PROTOCOL)
}

fn into_io(error: tungstenite::Error) -> io::Error {
    match error {
        WsError::Io(error) => error,
        WsError::ConnectionClosed
        | WsError::AlreadyClosed
        | WsError::Protocol(ProtocolError::SendAfterClosing) => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}
