use futures::future::join_all;
use tokio::sync::Semaphore;

use super::*;

/// Records the commands that it receives, and replies with their first words as soon as it may.
#[derive(Debug)]
struct Recorder {
    sent: Mutex<Vec<Vec<String>>>,
    answers: Semaphore,
    failure: Option<ConnectionError>,
}

/// A recorder, and a connection to it.
fn recorded(failure: Option<ConnectionError>) -> (Arc<Recorder>, Arc<dyn CommandConnection>) {
    let sent = Mutex::default();
    let recorder = Arc::new(Recorder { sent, answers: Semaphore::new(0), failure });
    let recorded = Arc::new(Recorded(recorder.clone()));
    (recorder, PipeliningConnection::wrap(recorded, &ClientHealth::default()))
}

impl Recorder {
    fn sent(&self) -> Vec<Vec<String>> {
        self.sent.lock().unwrap().clone()
    }
}

#[derive(Clone, Debug)]
struct Recorded(Arc<Recorder>);

impl CommandConnection for Recorded {
    fn call(&self, command: Command) -> ResponseFuture<RespValue> {
        let replies = self.pipeline(&[command]);
        async move { Ok(replies.await?.remove(0)) }.boxed().into()
    }

    fn pipeline(&self, commands: &[Command]) -> ResponseFuture<Vec<RespValue>> {
        let first = |command: &Command| {
            String::from_utf8_lossy(command.iter().next().unwrap()).into_owned()
        };
        let (recorder, words) = (self.0.clone(), commands.iter().map(first).collect::<Vec<_>>());
        async move {
            recorder.sent.lock().unwrap().push(words.clone());
            drop(recorder.answers.acquire().await.unwrap());
            match &recorder.failure {
                Some(failure) => Err(failure.clone()),
                None => Ok(words.into_iter().map(|word| RespValue::String(word.into())).collect()),
            }
        }
        .boxed()
        .into()
    }

    fn is_usable(&self) -> bool {
        true
    }
}

fn command(name: &str) -> Command {
    Command::new().arg(name)
}

fn text(name: &str) -> RespValue {
    RespValue::String(name.to_owned().into())
}

async fn turns() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// On a worker thread, where a task that is woken runs next.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn coalesced_calls_during_a_flight_are_sent_in_one_pipeline() {
    tokio::spawn(go_together()).await.unwrap();
}

async fn go_together() {
    let (recorder, node) = recorded(None);
    let first = tokio::spawn(node.call(command("first")));
    turns().await;
    assert_eq!(recorder.sent(), [["first"]], "alone, it does not wait");
    let requests = [&["a"][..], &["ASKING", "GET"], &["b"]];
    let rest = requests.map(|names| {
        let commands: Vec<Command> = names.iter().map(|name| command(name)).collect();
        tokio::spawn(node.pipeline(&commands))
    });
    turns().await;
    let sent = recorder.sent();
    assert_eq!((sent.len(), sent[1].len()), (2, 4), "{sent:?}");
    assert!(sent[1].windows(2).any(|two| two == ["ASKING", "GET"]), "{sent:?}");
    recorder.answers.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), text("first"));
    for (task, names) in rest.into_iter().zip(requests) {
        let expected: Vec<RespValue> = names.iter().map(|name| text(name)).collect();
        assert_eq!(task.await.unwrap().unwrap(), expected);
    }
    let last = node.call(command("last"));
    assert_eq!(last.await.unwrap(), text("last"));
    assert_eq!(recorder.sent().len(), 3);
}

/// The numbers of requests in the pipelines when this many callers are ready.
async fn handed_over(count: usize) -> Vec<usize> {
    let (recorder, node) = recorded(None);
    let first = tokio::spawn(node.call(command("first")));
    turns().await;
    let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let calls = names.iter().map(|name| node.call(command(name)));
    let calls = tokio::spawn(join_all(calls.collect::<Vec<_>>()));
    turns().await;
    let sent = recorder.sent();
    assert_eq!(sent[1..].concat(), names, "in order");
    recorder.answers.add_permits(1);
    let answers = calls.await.unwrap().into_iter().map(Result::unwrap);
    assert!(answers.eq(names.iter().map(|name| text(name))));
    first.await.unwrap().unwrap();
    sent[1..].iter().map(Vec::len).collect()
}

#[tokio::test]
async fn many_go_in_several_pipelines() {
    assert_eq!(handed_over(MAX_PIPELINE).await, [MAX_PIPELINE]);
    assert_eq!(handed_over(2 * MAX_PIPELINE + 1).await, [MAX_PIPELINE, MAX_PIPELINE, 1]);
    assert_eq!(
        handed_over(8 * MAX_PIPELINE - 1).await,
        [2 * MAX_PIPELINE, 2 * MAX_PIPELINE, 2 * MAX_PIPELINE, 2 * MAX_PIPELINE - 1]
    );
}

#[tokio::test]
async fn coalesced_call_dropped_before_its_pipeline_is_not_sent() {
    let (recorder, node) = recorded(None);
    let first = tokio::spawn(node.call(command("first")));
    turns().await;
    let mut given_up = node.call(command("given up"));
    let mut kept = node.call(command("kept"));
    assert!(futures::poll!(&mut given_up).is_pending());
    assert!(futures::poll!(&mut kept).is_pending());
    drop(given_up);
    turns().await;
    assert_eq!(recorder.sent(), [["first"], ["kept"]]);
    recorder.answers.add_permits(1);
    assert_eq!(kept.await.unwrap(), text("kept"));
    assert!(first.await.unwrap().is_ok());
    let never_polled = node.call(command("never polled"));
    drop(never_polled);
    turns().await;
    assert_eq!(recorder.sent().len(), 2);
}

#[tokio::test]
async fn coalesced_pipeline_failure_is_returned_to_every_call() {
    for maybe_sent in [true, false] {
        let failure = ConnectionError { maybe_sent, ..ConnectionError::not_sent("reset") };
        let (recorder, node) = recorded(Some(failure));
        let first = tokio::spawn(node.call(command("first")));
        turns().await;
        let others = tokio::spawn(join_all(["a", "b"].map(|name| node.call(command(name)))));
        turns().await;
        recorder.answers.add_permits(1);
        assert!(first.await.unwrap().is_err());
        for outcome in others.await.unwrap() {
            assert_eq!(outcome.unwrap_err().maybe_sent, maybe_sent);
        }
    }
}

#[tokio::test]
async fn coalesced_dropped_during_a_call_drops_its_node_after_that_call() {
    let (recorder, node) = recorded(None);
    let answer = tokio::spawn(node.call(command("first")));
    turns().await;
    drop(node);
    assert!(Arc::strong_count(&recorder) > 1, "an answer is waited for");
    answer.abort();
    let _ = answer.await;
    turns().await;
    assert_eq!(Arc::strong_count(&recorder), 1);
}
