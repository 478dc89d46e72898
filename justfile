# Common commands; `just` lists them. `./test` needs nothing but bash and cargo.

# List the commands.
default:
    @just --list

# Everything that must hold before a change lands.
test:
    ./test

# Install the peers that the tests talk to.
peers:
    ./test peers

# Start a broker on 127.0.0.1:1883; more arguments go to `tidegate serve`.
run *arguments:
    cargo run --release -- serve {{arguments}}

# Check the configuration.
check *arguments:
    cargo run -- check {{arguments}}

# Format everything.
format:
    cargo fmt --all

# Format check and lints, as in ./test.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Unit tests only: no servers, no peers.
unit *filter:
    cargo test --workspace --lib --bins {{filter}}

# Conformance with MQTT 3.1.1 and 5.0; a filter picks tests, such as `will::v5`.
conformance *filter:
    RUST_TEST_THREADS=8 cargo test --test conformance -- {{filter}}

# The conformance tests against Mosquitto, to check the tests; some fail there, and say so.
calibrate *filter:
    RUST_TEST_THREADS=8 TIDEGATE_TEST_SERVER=mosquitto cargo test --test conformance -- {{filter}}

# Clients that people use, against the real binary.
clients *filter: peers
    cargo test --test clients -- {{filter}}

# Hostile clients and back-pressure.
stress:
    cargo test --test hostile --test backpressure

# The documentation, without warnings.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
