//! The errors that clients get: of each its code, its text, and the status it has over HTTP.
//!
//! Three tables, and nothing else that makes an error:
//!
//! - [`Code`]: the vocabulary. A code is what programs tell errors by; it never changes, and it alone decides the status.
//! - [`ErrorKind`]: errors whose text is always the same. They are copied; only as an [`Error`] they are allocated.
//! - functions of [`Error`]: errors that name a field, a bound or a job.
//!
//! How an error travels is not known here: frames by `protocol::reply`, bodies of HTTP by [`ErrorRef::json`].

use std::borrow::Cow;
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])+ $code:ident = $name:literal, $status:literal;)+) => {
        /// Kinds of errors, for programs.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Code { $($(#[$doc])+ $code,)+ }

        impl Code {
            /// All of them, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// The code as clients see it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)+ }
            }

            /// The status of an HTTP response with this code.
            pub const fn status(self) -> u16 {
                match self { $(Self::$code => $status,)+ }
            }

            /// The code of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$code),)+ _ => None }
            }
        }
    };
}

macro_rules! fixed {
    ($($kind:ident: $code:ident, $text:literal;)+) => {
        /// An error whose text is always the same.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum ErrorKind { $(#[doc = concat!("`", $text, "`")] $kind,)+ }

        impl ErrorKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// The code, for programs.
            pub const fn code(self) -> Code {
                match self { $(Self::$kind => Code::$code,)+ }
            }

            /// The text, for people.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$kind => $text,)+ }
            }
        }
    };
}

macro_rules! filled {
    ($($name:ident($($field:ident: $type:ty),+): $code:ident, $text:literal;)+) => {
        impl Error {
            $(
                #[doc = concat!("`", $text, "`")]
                #[cold]
                pub fn $name($($field: $type),+) -> Self {
                    Self::own(Code::$code, format!($text))
                }
            )+
        }
    };
}

codes! {
    /// The bytes are no request: a malformed frame, JSON, or HTTP message.
    InvalidRequest = "invalid_request", 400;
    /// A field is missing, of another type, out of its bounds, or does not fit the others.
    InvalidField = "invalid_field", 400;
    /// There is no command of this name.
    UnknownCommand = "unknown_command", 400;
    /// This server, port or kind of connection does not offer what is asked for.
    Unsupported = "unsupported", 400;
    /// There is no such job, or it is not active.
    NotActive = "not_active", 400;
    /// The state of the job, or its place in a family, does not allow the command.
    WrongState = "wrong_state", 400;
    /// The job is locked, and the command has no lock token.
    TokenRequired = "token_required", 400;
    /// The lock token is wrong or expired.
    TokenMismatch = "token_mismatch", 400;
    /// A job of this id exists.
    DuplicateId = "duplicate_id", 400;
    /// A job that the pushed one depends on does not exist.
    DependencyNotFound = "dependency_not_found", 400;
    /// A group, or the number or size of things of a kind, is at its limit.
    LimitReached = "limit_reached", 400;
    /// There is no valid token for the server.
    Unauthorized = "unauthorized", 401;
    /// The request seems to come from a web page that is not allowed.
    CrossOrigin = "cross-origin", 403;
    /// The token is valid, but not for this command or this queue.
    Forbidden = "forbidden", 403;
    /// The job, queue entry, schedule, worker, webhook, group or path does not exist.
    NotFound = "not_found", 404;
    /// The request was not complete in time.
    Timeout = "timeout", 408;
    /// The request is longer than it may be.
    TooLarge = "too_large", 413;
    /// `Expect` asks for something that the server does not know.
    ExpectationFailed = "expectation_failed", 417;
    /// The path needs another version of WebSocket.
    UpgradeRequired = "upgrade_required", 426;
    /// The client sends more requests than it may.
    RateLimited = "rate_limited", 429;
    /// The head of the request is too long.
    HeadersTooLarge = "headers_too_large", 431;
    /// The server made a mistake.
    Internal = "internal", 500;
    /// The stored record of the job cannot be read.
    Damaged = "damaged", 500;
    /// The reply would be longer than a frame or a text may be.
    ReplyTooLarge = "reply_too_large", 500;
    /// The request has a transfer coding that the server does not know.
    NotImplemented = "not_implemented", 501;
    /// Too much of this kind waits already.
    Busy = "busy", 503;
    /// The server reads its log and takes no requests yet.
    Starting = "starting", 503;
    /// The server stops.
    ShuttingDown = "shutting_down", 503;
    /// The system lacks something other than disk space.
    NoResources = "no_resources", 503;
    /// The data directory has been removed or replaced.
    DataGone = "data_gone", 503;
    /// The version of HTTP is none that the server speaks.
    VersionNotSupported = "version_not_supported", 505;
    /// The disk has no space for what the command adds.
    DiskFull = "disk_full", 507;
}

fixed! {
    FrameNotMap: InvalidRequest, "Invalid frame: it is not a map";
    FrameGoesOn: InvalidRequest, "Invalid frame: bytes follow the command";
    BodyNotJson: InvalidRequest, "Invalid JSON body";
    BadRequest: InvalidRequest, "Bad request";
    LineEnds: InvalidRequest, "Lines must end with CR LF";
    ContentLength: InvalidRequest, "Content-Length must be given once, as a number";
    BothLengths: InvalidRequest, "Content-Length and Transfer-Encoding must not both be given";
    TransferEncodings: InvalidRequest, "Transfer-Encoding must be given once, to HTTP/1.1";
    Host: InvalidRequest, "Host must be given once";
    Chunks: InvalidRequest, "The chunks of the body are garbled";
    PathEncoding: InvalidRequest, "The path must be percent-encoded UTF-8";
    QueryEncoding: InvalidRequest, "The query must be percent-encoded UTF-8";
    StreamBody: InvalidRequest, "A stream is asked for without a body";
    UpgradeHttp11: InvalidRequest, "A WebSocket begins with HTTP/1.1";
    UpgradeWebSocket: InvalidRequest, "Upgrade must be websocket";
    ConnectionUpgrade: InvalidRequest, "Connection must be Upgrade";
    WebSocketVersionOnce: InvalidRequest, "Sec-WebSocket-Version must be given once";
    WebSocketVersionAbsent: InvalidRequest, "Sec-WebSocket-Version must be 13";
    WebSocketKeyOnce: InvalidRequest, "Sec-WebSocket-Key must be given once";
    WebSocketKey: InvalidRequest, "Sec-WebSocket-Key must be 16 bytes in base64";

    CmdRequired: InvalidField, "cmd is required";
    CmdNotText: InvalidField, "cmd must be a string";
    ReqIdTooLong: InvalidField, "reqId must have at most 4096 bytes";
    ResultsLength: InvalidField, "results must have the same length as ids";
    RemovesLength: InvalidField, "removeOnCompletes must have the same length as ids";
    DurationsLength: InvalidField, "durations must have the same length as ids";
    TokensLength: InvalidField, "tokens must not be longer than ids";
    QueueAndShard: InvalidField, "queue and shard must not both be given";
    JobIdAndFilter: InvalidField, "jobId and filter must not both be given";
    ConfigRequired: InvalidField, "config is required";
    CadenceRequired: InvalidField, "schedule or repeatEvery is required";
    CadenceTwice: InvalidField, "schedule and repeatEvery must not both be given";
    CronTwice: InvalidField, "name must not be given with schedule, repeatEvery or timezone";
    RepeatTwice: InvalidField, "repeat.every and repeat.pattern must not both be given";
    RepeatNever: InvalidField, "repeat.pattern has no run between startDate and endDate";
    AffinityTwice: InvalidField, "group.affinity must be given only once";
    DependsOnItself: InvalidField, "dependsOn must not name the job itself";
    ChildTwice: InvalidField, "childrenIds must not name a job twice";
    DependencyTwice: InvalidField, "dependsOn must not name a job twice";
    FlowCustomId: InvalidField, "customId must be the id";
    FlowRepeat: InvalidField, "repeat is not for jobs of a flow";
    FlowUniqueKey: InvalidField, "uniqueKey and debounceId are not for jobs of a flow";
    FlowPolicy: InvalidField, "what a failure means for a parent needs a parentId";
    FlowCircle: InvalidField, "jobs must not depend on each other in a circle";
    OwnParent: InvalidField, "A job cannot be its own parent";
    NoRunAhead: InvalidField, "schedule has no run in the future";
    BodyNotObject: InvalidField, "body must be an object";
    BodyTooDeep: InvalidField, "body must be at most 128 levels deep";
    BodyTooLong: InvalidField, "body is longer than its command can be";
    StreamQueue: InvalidField, "queue must be 1 to 256 characters: letters, digits, _ - . :";

    TlsSpoken: Unsupported, "This port speaks TLS";
    TlsNotSpoken: Unsupported, "This port does not speak TLS";
    StreamQueueTwice: InvalidField, "queue must not be given in the path and in the query";
    EventsEmpty: InvalidField, "events must be a non-empty array";
    TypesAndEvents: InvalidField, "types and events must not both be given";

    SubscribeOverTcp: Unsupported, "Subscriptions are for connections over TCP";
    NeedsConnection: Unsupported, "This command is about a connection over TCP or WebSocket";
    WatchOverHttp: Unsupported, "Samples are for connections over TCP and WebSocket";
    NoTokensToShow: Unsupported, "The server has no tokens, so there is nothing to log in with";
    NothingOnDisk: Unsupported, "The server keeps nothing on a disk";
    AuditOff: Unsupported, "The server keeps no audit log";

    NotActive: NotActive, "Job not found or not active";
    NotCancellable: WrongState, "Job not found or cannot be cancelled";
    NotPending: WrongState, "Job not found or not waiting or delayed";
    NotDelayed: WrongState, "Job not found or not delayed";
    NotMovable: WrongState, "Job not found or cannot be moved to waiting";
    NotDelayable: WrongState, "Job not found or not waiting, delayed or active";
    Ended: WrongState, "Job not found or already completed or failed";
    NothingToWaitFor: WrongState, "Job is not active or has no children to wait for";
    GroupOfJobFull: LimitReached, "The group of a job is full";
    EventPatternsFull: LimitReached, "The choices of events of a shard have 5000 patterns together, which is the most";
    EventChoicesFull: LimitReached, "Too many different choices of events; those that others have made already are still open";

    Unauthorized: Unauthorized, "Unauthorized";
    NotAuthenticated: Unauthorized, "Not authenticated";
    InvalidToken: Unauthorized, "Invalid token";

    OtherOrigin: CrossOrigin, "This request comes from a web page whose origin is neither this server's nor in CORS_ALLOW_ORIGIN";
    OtherSite: CrossOrigin, "This request comes from a web page of another origin that does not say which: CORS_ALLOW_ORIGIN lists origins that may ask, and * lets all";
    OtherHost: CrossOrigin, "The Host of this request is neither an IP address nor localhost nor in ALLOWED_HOSTS";
    SecretPage: CrossOrigin, "A browser that does not say for which page it asks takes no jobs: use TLS, or localhost, or a token";

    RoleForbids: Forbidden, "The role of this token does not allow this";
    QueueForbids: Forbidden, "This token is not for this queue";
    ScopeForbids: Forbidden, "This token is limited to some queues, and this is about the whole server";

    PathNotFound: NotFound, "Not found";
    JobNotFound: NotFound, "Job not found";
    UnknownCursor: InvalidField, "after must be a cursor of an earlier reply to the same request";
    OffsetAndCursor: InvalidField, "offset must not be given with after, order, fields, data, name, tag, group, from or to";
    IdsOrFilter: InvalidField, "ids or filter is required";
    IdsAndFilter: InvalidField, "ids and filter must not both be given";
    FilterWithoutQueue: InvalidField, "queue is required with filter";
    ValueWithoutPath: InvalidField, "path is required with value";
    TaskNotFound: NotFound, "Task not found";
    TaskForgotten: NotFound, "Task not found: a restart of the server has ended it. Send the Bulk again";
    GroupNotFound: NotFound, "Group not found";
    CronNotFound: NotFound, "Cron not found";
    WorkerNotFound: NotFound, "Worker not found";
    WebhookNotFound: NotFound, "Webhook not found";

    RequestTooSlow: Timeout, "The request did not come in time";
    FrameTooSlow: Timeout, "The frame did not come in time";
    FrameTooLarge: TooLarge, "Frame exceeds 64 MB";
    CommandBodyTooLarge: TooLarge, "The body must be at most 12 MB";
    ShortBodyTooLarge: TooLarge, "The body must be at most 384 KB";
    UnreadBodyTooLarge: TooLarge, "The body must be at most 64 KB";
    Expectation: ExpectationFailed, "Expect must be 100-continue";
    WebSocketVersion: UpgradeRequired, "Sec-WebSocket-Version must be 13";
    TooOften: RateLimited, "Rate limit exceeded";
    HeadTooLarge: HeadersTooLarge, "The head must be at most 32 KB with at most 100 headers";
    HeadTooLong: HeadersTooLarge, "The head must be at most 32 KB";

    Internal: Internal, "Internal server error";
    Damaged: Damaged, "The stored job is damaged";
    ReplyTooLarge: ReplyTooLarge, "The reply does not fit a frame";
    TransferEncoding: NotImplemented, "Transfer-Encoding must be chunked";
    TooManyTasks: Busy, "Too many tasks are running: at most 32 on a shard";
    WebhookTestsWait: Busy, "Too many tests of webhooks are under way already";
    AuditReadsWait: Busy, "Too many reads of the audit log are under way already";
    LongCommandsWait: Busy, "Too many long commands wait already";
    FramesTooLarge: Busy, "The frames of all connections are too large together";
    BodiesTooLarge: Busy, "The bodies of all requests are too large together";
    DiskBehind: Busy, "The disk is too far behind";
    Starting: Starting, "Server is starting";
    Stopping: ShuttingDown, "The server is stopping";
    NoFiles: NoResources, "Too many open files";
    NoMemory: NoResources, "Out of memory";
    NoSegment: NoResources, "The log gets no further file";
    DataGone: DataGone, "The data directory is gone";
    HttpVersion: VersionNotSupported, "The version must be HTTP/1.1 or HTTP/1.0";
    DiskFull: DiskFull, "Disk full";
}

filled! {
    invalid_frame(what: impl fmt::Display): InvalidRequest, "Invalid frame: {what}";
    invalid_json(what: impl fmt::Display): InvalidRequest, "Invalid JSON: {what}";
    cmd_too_late(most: impl fmt::Display): InvalidRequest, "cmd must stand in the first {most} bytes";
    unknown_command(name: &str): UnknownCommand, "Unknown command: {name}";

    required(field: &str): InvalidField, "{field} is required";
    must_be(field: &str, what: impl fmt::Display): InvalidField, "{field} must be {what}";
    item_must_be(field: &str, index: impl fmt::Display, what: impl fmt::Display): InvalidField, "{field}[{index}] must be {what}";
    unknown_field(name: &str, known: &str): InvalidField, "Unknown field: {name}; did you mean {known}?";
    parameter_of_body(name: &str): InvalidField, "Unknown query parameter: {name}; what this command takes stands in the body";
    no_field(name: &str): InvalidField, "{name} is no field of this command";
    no_field_but(name: &str, known: &str): InvalidField, "{name} is no field of this command; did you mean {known}?";
    null(field: &str): InvalidField, "{field} must not be null";
    empty(field: &str): InvalidField, "{field} must not be empty";
    unknown_parameter(name: &str, known: &str): InvalidField, "Unknown query parameter: {name}; did you mean {known}?";
    given_twice(field: &str): InvalidField, "{field} must be given only once";
    unknown_fields_too_large(most: impl fmt::Display): InvalidField, "unknown fields must have at most {most} bytes";
    options_too_large(most: impl fmt::Display): InvalidField, "job options must be at most {most} bytes together";
    too_many_values(command: &str, most: impl fmt::Display): InvalidField, "{command} must have at most {most} keys and values beside payloads";
    too_many_patterns(most: impl fmt::Display): InvalidField, "repeat.pattern must be in at most {most} jobs of a batch";
    too_many_dependencies(most: impl fmt::Display): InvalidField, "jobs must have at most {most} dependencies together";
    data_beside_children(most: impl fmt::Display): InvalidField, "data must be at most {most} bytes beside so many childrenIds";
    over_size_limit(most: impl fmt::Display): InvalidField, "data must be at most {most} bytes, as sizeLimit says";
    flow_answer_too_large(most: impl fmt::Display): InvalidField, "jobs must be answered in {most} MB";
    runs_are_done(runs: impl fmt::Display): InvalidField, "maxLimit must be more than the {runs} runs there have been";
    bad_schedule(why: impl fmt::Display): InvalidField, "{why}";
    bad_url(why: impl fmt::Display): InvalidField, "{why}";
    id_twice(id: &str): InvalidField, "id {id} is given twice";
    child_no_dependency(child: &str): InvalidField, "childrenIds names {child}, which dependsOn does not";
    child_without_parent(child: &str, parent: &str): InvalidField, "{child} is a child of {parent}, which its parentId must say";
    parent_without_child(parent: &str): InvalidField, "parentId names {parent}, whose childrenIds do not name it";
    command_too_long(command: &str, most: impl fmt::Display, payload: &str): TooLarge, "{command} must have at most {most} bytes{payload}";

    token_required(job: &str): TokenRequired, "Lock token required for job {job}";
    token_invalid(job: &str): TokenMismatch, "Invalid or expired lock token for job {job}";
    flow_job_exists(id: &str): DuplicateId, "Flow job {id} already exists";
    dependency_not_found(job: &str): DependencyNotFound, "Dependency job not found: {job}";
    child_not_found(job: &str): NotFound, "Child job not found: {job}";
    parent_not_found(job: &str): NotFound, "Parent job not found: {job}";
    no_parent(job: &str): WrongState, "Job {job} has no parent";
    other_parent(job: &str, parent: &str): WrongState, "Child job {job} already belongs to parent {parent}";
    parent_is_child(job: &str): WrongState, "Parent job {job} is a child of the job itself";
    parent_not_linkable(job: &str): WrongState, "Parent job {job} is not linkable";
    parent_elsewhere(job: &str, queue: &str, named: &str): WrongState, "Parent job {job} belongs to queue {queue}, not {named}";

    role_forbids(command: &str, role: &str, needed: &str): Forbidden, "{command} is not for the role {role}: it needs {needed}";
    queue_forbidden(queue: &str, queues: impl fmt::Display): Forbidden, "queue {queue} is not one of those that this token is for: {queues}";
    scope_forbids(command: &str, queues: impl fmt::Display): Forbidden, "{command} is not for a token that is limited to queues: {queues}";
    watch_forbidden(queues: impl fmt::Display): Forbidden, "what must be queues for a token that is limited to some: {queues}";
    parent_forbidden(queues: impl fmt::Display): Forbidden, "parentId is not for a token that is limited to queues, but in PUSHF: {queues}";

    empty_in_query(field: &str): InvalidField, "{field} must not be empty";
    event_queue(index: usize): InvalidField, "queues[{index}] must be 1 to 256 characters: letters, digits, _ - . : and at most one * for any characters";
    event_names(names: &str): InvalidField, "events: Invalid: {names}; known are names and patterns such as job:failed, job:*, queue:* and *";

    group_full(group: &str, max: impl fmt::Display): LimitReached, "Group {group} has reached its maximum size of {max}";
    too_many_group_settings(most: impl fmt::Display): LimitReached, "At most {most} groups of a shard may have settings";
    too_many_queue_settings(most: impl fmt::Display): LimitReached, "At most {most} queues of a shard may have settings";
    too_many_webhooks(most: impl fmt::Display): LimitReached, "Too many webhooks: at most {most}";
    too_many_schedules(most: impl fmt::Display): LimitReached, "Too many schedules: at most {most}";
    schedules_too_large(most: impl fmt::Display): LimitReached, "data of all schedules together must be at most {most} bytes";
}

/// An error on its way to a client. Decoding returns it with each value that it reads, and refuses few: so it is one
/// word, and a value beside it comes back in registers.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Boxed>);

/// Content of an error, boxed to keep results small.
#[derive(Clone, PartialEq, Eq)]
struct Boxed {
    code: Code,
    text: Cow<'static, str>,
}

const _: () = assert!(size_of::<Result<&str, Error>>() == 16 && size_of::<Option<Error>>() == 8);

impl Error {
    #[cold]
    fn own(code: Code, text: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Boxed { code, text: text.into() }))
    }

    /// Puts the path to the wrong field in front of the text. Errors that make a frame unreadable have no path.
    #[cold]
    #[must_use]
    pub fn inside(self, path: impl fmt::Display) -> Self {
        match self.code() {
            Code::InvalidRequest => self,
            code => Self::own(code, format!("{path}{}", self.text())),
        }
    }

    /// Puts the place of a job of a batch in front of the text.
    #[cold]
    #[must_use]
    pub fn in_job(self, place: usize) -> Self {
        self.inside(format_args!("jobs[{place}]: "))
    }

    /// The code, for programs.
    pub fn code(&self) -> Code {
        ErrorRef::from(self).code
    }

    /// The text, for people.
    pub fn text(&self) -> &str {
        ErrorRef::from(self).text
    }
}

impl From<ErrorKind> for Error {
    #[cold]
    fn from(kind: ErrorKind) -> Self {
        Self::own(kind.code(), kind.text())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code().name(), self.text())
    }
}

/// An error as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorRef<'a> {
    /// The code, for programs.
    pub code: Code,
    /// The text, for people.
    pub text: &'a str,
}

impl ErrorRef<'_> {
    /// The body of an HTTP response, for an error whose text needs no escapes.
    pub fn json(self) -> String {
        let Self { code, text } = self;
        format!(r#"{{"ok":false,"error":"{text}","code":"{}"}}"#, code.name())
    }
}

impl From<ErrorKind> for ErrorRef<'static> {
    #[inline]
    fn from(kind: ErrorKind) -> Self {
        Self { code: kind.code(), text: kind.text() }
    }
}

impl<'a> From<&'a Error> for ErrorRef<'a> {
    fn from(error: &'a Error) -> Self {
        Self { code: error.0.code, text: &error.0.text }
    }
}
