package dynamo

import (
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// bridgeKey holds the hash of a correlation id: one may be longer than a key, and
// holds any character.
func bridgeKey(k bridge.Key) key {
	return bridgeNamed(k.Tenant, k.Name())
}

func bridgeNamed(tenant, name string) key { return key{"BR#" + tenant + "#" + name, "BR"} }

func sendKey(tenant, hash string) key { return key{"RS#" + tenant, hash} }

// rowItem is a correlation id's row. It holds the whole request, so that a
// reservation whose owner died can be submitted by somebody who never saw it.
type rowItem struct {
	head
	Tenant        string       `dynamodbav:"tenant"`
	CorrelationID string       `dynamodbav:"correlation_id"`
	State         bridge.State `dynamodbav:"state"`
	Token         lease.Token  `dynamodbav:"claim_token"`
	Ver           int64        `dynamodbav:"ver"`
	ClaimedAt     int64        `dynamodbav:"claimed_at"`
	GivenBack     bool         `dynamodbav:"given_back,omitempty"`
	Request       requestItem  `dynamodbav:"request"`
	Hash          string       `dynamodbav:"request_hash"`
	RequestID     string       `dynamodbav:"request_id,omitempty"`
	Job           string       `dynamodbav:"job,omitempty"`
	TTL           int64        `dynamodbav:"ttl,omitempty"`
}

type requestItem struct {
	Submitter string            `dynamodbav:"submitter"`
	FileID    string            `dynamodbav:"input_file_id"`
	Endpoint  string            `dynamodbav:"endpoint"`
	Window    string            `dynamodbav:"window"`
	Metadata  map[string]string `dynamodbav:"metadata,omitempty"`
	Expiry    int64             `dynamodbav:"output_expiry,omitempty"` // milliseconds
	Object    *inputItem        `dynamodbav:"object,omitempty"`
	Service   string            `dynamodbav:"service,omitempty"`
}

// inputItem is an object that no file record stood for when it was asked for.
type inputItem struct {
	objectItem
	StoredAt int64 `dynamodbav:"stored_at"`
}

func newRequestItem(q bridge.Request) requestItem {
	i := requestItem{
		Submitter: q.Submitter, FileID: q.FileID, Endpoint: q.Endpoint, Window: q.Window, Metadata: q.Metadata,
		Expiry: q.OutputExpiry.Milliseconds(), Service: q.Service,
	}
	if o := q.Object; o != nil {
		i.Object = &inputItem{objectItem{o.Bucket, o.Key, o.Version, o.ETag, o.Bytes}, millis(o.StoredAt)}
	}
	return i
}

// request is all of it but what the row has itself.
func (i requestItem) request() bridge.Request {
	q := bridge.Request{
		Submitter: i.Submitter, FileID: i.FileID, Endpoint: i.Endpoint, Window: i.Window, Metadata: i.Metadata,
		OutputExpiry: time.Duration(i.Expiry) * time.Millisecond, Service: i.Service,
	}
	if o := i.Object; o != nil {
		q.Object = &bridge.Object{Bucket: o.Bucket, Key: o.Key, Version: o.Version, ETag: o.ETag, Bytes: o.Bytes, StoredAt: fromMillis(o.StoredAt)}
	}
	return q
}

func newRowItem(r bridge.Row) rowItem {
	q := r.Request
	return rowItem{
		head:   newHead(bridgeKey(r.Key), r.Due),
		Tenant: r.Tenant, CorrelationID: r.CorrelationID,
		State: r.State, Token: r.Token, Ver: r.Ver, ClaimedAt: millis(r.ClaimedAt), GivenBack: r.GivenBack,
		Request: newRequestItem(q), Hash: r.Hash, RequestID: q.RequestID, Job: r.Job, TTL: seconds(r.ExpiresAt),
	}
}

func (i rowItem) row() bridge.Row {
	q := i.Request.request()
	q.Tenant, q.CorrelationID, q.RequestID = i.Tenant, i.CorrelationID, i.RequestID
	return bridge.Row{
		Key: bridge.Key{Tenant: i.Tenant, CorrelationID: i.CorrelationID}, State: i.State, Token: i.Token, Ver: i.Ver,
		ClaimedAt: fromMillis(i.ClaimedAt), GivenBack: i.GivenBack, Due: fromMillis(i.DueAt),
		Request: q, Hash: i.Hash, Job: i.Job, ExpiresAt: fromSeconds(i.TTL),
	}
}

// sendItem is the last send of a request without a correlation id.
type sendItem struct {
	head
	Tenant  string `dynamodbav:"tenant"`
	Hash    string `dynamodbav:"request_hash"`
	ID      string `dynamodbav:"batch"`
	Created int64  `dynamodbav:"created_at"`
	Ver     int64  `dynamodbav:"ver"`
	TTL     int64  `dynamodbav:"ttl"`
}

func newSendItem(s bridge.Send) sendItem {
	return sendItem{
		head:   newHead(sendKey(s.Tenant, s.Hash), time.Time{}),
		Tenant: s.Tenant, Hash: s.Hash, ID: s.ID, Created: millis(s.At), Ver: s.Ver, TTL: seconds(s.ExpiresAt),
	}
}

func (i sendItem) send() bridge.Send {
	return bridge.Send{Tenant: i.Tenant, Hash: i.Hash, ID: i.ID, At: fromMillis(i.Created), ExpiresAt: fromSeconds(i.TTL), Ver: i.Ver}
}

// seconds is a time as TTL demands it; zero stands for none.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func fromSeconds(s int64) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}
