//! Running out of file descriptors, in a process of its own because the limit holds for a whole process.

use std::process::Command;

use super::*;

const INSIDE: &str = "TIDEGATE_TEST_FEW_DESCRIPTORS";

#[test]
fn too_few_descriptors_are_survived() {
    let script = "ulimit -n 64 && exec \"$0\" --exact listen::tests::descriptors::inside --nocapture";
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh").args(["-c", script]).arg(program).env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("survived"), "{output:?}");
}

/// Does nothing unless the test above starts it.
#[tokio::test]
#[allow(clippy::print_stdout)]
async fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let server = Server::start(&on(Transport::Mqtt), None);
    let mut clients = Vec::new();
    let spare = std::fs::File::open("/dev/null").unwrap();
    // Both ends are in this process: each connection takes two descriptors, and the last ones are not accepted.
    while let Ok(client) = TcpStream::connect(server.address()).await {
        clients.push(client);
    }
    // All of them may be accepted if the number of descriptors is even: one more, for which there is only its own.
    drop(spare);
    clients.push(TcpStream::connect(server.address()).await.unwrap());
    until("accept failing", || server.connections.counts().accept_errors >= 2).await;
    let served = server.connections.open();
    assert!(served > 5 && served < clients.len(), "{served} of {}", clients.len());
    // Trying without a pause would fail tens of thousands of times in this second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.connections.counts().accept_errors < 200);
    assert_echoes(&mut clients[0], "others are served").await;
    let mut last = clients.pop().unwrap();
    clients.clear();
    assert_echoes(&mut last, "and the last one in time").await;
    println!("survived");
}
