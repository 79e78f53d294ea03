//! For tests: a server that answers as it is told to.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use valkey_engine::{Login, Node, Route};

pub const OK: &str = "+OK\r\n";

/// A connection to a server at `path` that answers every command, given as words, with what `answer` makes of it.
pub async fn fake_server(path: &Path, answer: impl FnMut(&str) -> String + Send + 'static) -> Node {
    listen(path, answer);
    let login = Login { user: "valkey-admin".into(), password: "secret".to_owned().into() };
    Node::connect(Route::Socket(path), &login).await.unwrap()
}

/// The same for whoever connects first.
pub fn listen(path: &Path, mut answer: impl FnMut(&str) -> String + Send + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            for command in commands(&String::from_utf8_lossy(&buffer[..length])) {
                let said = if command.starts_with("AUTH") { OK.to_owned() } else { answer(&command) };
                stream.write_all(said.as_bytes()).await.unwrap();
            }
        }
    });
}

pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn commands(text: &str) -> Vec<String> {
    let commands = text.split('*').skip(1);
    commands
        .map(|command| {
            let words = command.lines().skip(1).filter(|line| !line.starts_with('$'));
            words.collect::<Vec<_>>().join(" ")
        })
        .collect()
}
