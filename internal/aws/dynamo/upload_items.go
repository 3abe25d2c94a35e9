package dynamo

import (
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

func uploadKey(tenant, id string) key { return key{"U#" + tenant, id} }

// uploadGrace is how long an upload's record outlives it before TTL takes it:
// whoever lost the answer to a completion may still ask again.
const uploadGrace = 7 * 24 * time.Hour

// uploadItem is one upload.
type uploadItem struct {
	head
	Tenant     string        `dynamodbav:"tenant"`
	ID         string        `dynamodbav:"id"`
	Status     upload.Status `dynamodbav:"status"`
	Bytes      int64         `dynamodbav:"bytes"`
	Filename   string        `dynamodbav:"filename"`
	Purpose    string        `dynamodbav:"purpose"`
	FileExpiry int64         `dynamodbav:"file_expiry"` // milliseconds
	CreatedAt  int64         `dynamodbav:"created_at"`
	ExpiresAt  int64         `dynamodbav:"expires_at"`

	Parts     map[string]uploadPart `dynamodbav:"parts"`               // never absent: parts are set in it
	Multipart string                `dynamodbav:"multipart,omitempty"` // absent until begun: a condition asks for that

	PartsHash string     `dynamodbav:"parts_hash,omitempty"` // the same
	Object    objectItem `dynamodbav:"object"`
	MD5       string     `dynamodbav:"md5,omitempty"`
	SettledAt int64      `dynamodbav:"settled_at,omitempty"`
	Ver       int64      `dynamodbav:"ver"`
	TTL       int64      `dynamodbav:"ttl"` // Unix seconds
}

// uploadPart is one direct part: comparable, because AddPart compares.
type uploadPart struct {
	Bytes     int64  `dynamodbav:"bytes"`
	ETag      string `dynamodbav:"etag"`
	CreatedAt int64  `dynamodbav:"created_at"`
}

func newUploadPart(p upload.Part) uploadPart { return uploadPart{p.Bytes, p.ETag, millis(p.CreatedAt)} }

func newUploadItem(u upload.Upload) uploadItem {
	i := uploadItem{
		head:   newHead(uploadKey(u.Tenant, u.ID), u.ExpiresAt),
		Tenant: u.Tenant, ID: u.ID, Status: u.Status, Bytes: u.Bytes, Filename: u.Filename, Purpose: u.Purpose,
		FileExpiry: u.FileExpiry.Milliseconds(), CreatedAt: millis(u.CreatedAt), ExpiresAt: millis(u.ExpiresAt),
		Parts: map[string]uploadPart{}, Multipart: u.Multipart,
		PartsHash: u.PartsHash, Object: objectItem(u.Object), MD5: u.MD5, SettledAt: millis(u.SettledAt), Ver: u.Ver,
		TTL: u.ExpiresAt.Add(uploadGrace).Unix(),
	}
	for id, p := range u.Parts {
		i.Parts[id] = newUploadPart(p)
	}
	return i
}

func (i uploadItem) upload() upload.Upload {
	u := upload.Upload{
		Tenant: i.Tenant, ID: i.ID, Status: i.Status, Bytes: i.Bytes, Filename: i.Filename, Purpose: i.Purpose,
		FileExpiry: time.Duration(i.FileExpiry) * time.Millisecond, CreatedAt: fromMillis(i.CreatedAt), ExpiresAt: fromMillis(i.ExpiresAt),
		Multipart: i.Multipart, PartsHash: i.PartsHash, Object: batch.Object(i.Object), MD5: i.MD5, SettledAt: fromMillis(i.SettledAt), Ver: i.Ver,
	}
	if len(i.Parts) > 0 {
		u.Parts = make(map[string]upload.Part, len(i.Parts))
	}
	for id, p := range i.Parts {
		u.Parts[id] = upload.Part{Bytes: p.Bytes, ETag: p.ETag, CreatedAt: fromMillis(p.CreatedAt)}
	}
	return u
}
