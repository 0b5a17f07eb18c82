//! Worlds with an extra client, with existing keys, or on a special or shared store.

use tokio::sync::OnceCell;
use tollgate::{
    AuthService, Client, ClientIp, ClientTable, StoredUsers, Tokens,
    clock::UnixTime,
    delivery::Outbox,
    store::{AnyStore, Key, Memory, Record, WriteOutcome},
    testing::ManualClock,
};

use crate::{
    controlled_store::ControlledStore,
    world::{CALLBACK, ISSUER, World, clients},
};

/// Creates a client of acme with a page at `https://app.example`.
pub(crate) fn client(id: &str) -> Client {
    let client = Client::new(id, "acme".parse().unwrap()).unwrap().scopes("openid profile email").unwrap();
    client.redirect_uri(CALLBACK).unwrap().origin("https://app.example").unwrap()
}

/// Creates a world with an extra client called `special`.
pub(crate) async fn world_with(special: impl FnOnce(Client) -> Client) -> World {
    let store = AnyStore::from(Memory::new());
    let tokens = Tokens::new();
    let all = clients().iter().map(|client| Client::clone(client)).collect::<Vec<_>>();
    let clients = ClientTable::new(all.into_iter().chain([special(client("special"))])).unwrap();
    World::made(store, ManualClock::new(), clients, tokens, |service| service).await
}

/// Puts signing keys into a new store, because creating keys takes long.
pub(crate) async fn put_keys(store: &AnyStore) {
    static RING: OnceCell<Record> = OnceCell::const_new();
    let key = Key::new("signing_keys", None, b"ring").unwrap();
    let ring = RING
        .get_or_init(|| async {
            let memory = AnyStore::from(Memory::new());
            let users = StoredUsers::new(memory.clone());
            let service = AuthService::builder(ISSUER, memory.clone())
                .users(users)
                .client_ip(ClientIp::peer())
                .email(Outbox::new())
                .tokens(Tokens::new())
                .clock(ManualClock::new())
                .build()
                .unwrap();
            service.prepare().await.unwrap();
            let entry = memory.get(&key).wait().await.unwrap().unwrap();
            Record::new(entry.value, UnixTime::from_secs(0), entry.expires_at).unwrap()
        })
        .await;
    assert!(matches!(store.insert(&key, ring.clone()).await.unwrap(), WriteOutcome::Done(_)));
}

/// Creates a world on its own store, which already has keys.
pub(crate) async fn world_with_keys() -> World {
    let store = AnyStore::from(Memory::new());
    put_keys(&store).await;
    World::on(store, ManualClock::new(), |service| service).await
}

/// Creates a world with keys on a store that the test controls.
pub(crate) async fn controlled_store_with_keys() -> (ControlledStore, World) {
    let store = ControlledStore::default();
    put_keys(&store.clone().into()).await;
    let world = World::with(store.clone(), |service| service).await;
    (store, world)
}

/// Creates two services with one store and one clock.
pub(crate) async fn two_nodes(store: impl Into<AnyStore>) -> [World; 2] {
    two_nodes_with(store, clients()).await
}

/// Creates two services with one store, one clock and these clients.
pub(crate) async fn two_nodes_with(store: impl Into<AnyStore>, clients: ClientTable) -> [World; 2] {
    let (store, clock) = (store.into(), ManualClock::new());
    put_keys(&store).await;
    let node = || World::made(store.clone(), clock.clone(), clients.clone(), Tokens::new(), |service| service);
    [node().await, node().await]
}
