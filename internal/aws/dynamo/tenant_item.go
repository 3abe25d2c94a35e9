package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/access"
)

const tenantPrefix = "TENANT#"

func tenantKey(name string) key { return key{tenantPrefix + name, "T"} }

// tenantRecords is the one collection of all of them in the tenant index, by
// name. They are few, and people change them: no partition is too hot for that.
const tenantRecords = "TENANTS"

// tenantItem is the record of a tenant. It is flat, so that a change leaves what
// a newer program added to a door or to the limits: an attribute is set or
// removed by name, a map would be replaced.
type tenantItem struct {
	head
	Tenant string `dynamodbav:"tenant"`

	// The S3 door is on where it has a principal.
	DropPrincipal string `dynamodbav:"drop_principal,omitempty"`
	DropEndpoint  string `dynamodbav:"drop_endpoint,omitempty"`
	DropWindow    string `dynamodbav:"drop_window,omitempty"`
	DropSince     int64  `dynamodbav:"drop_since,omitempty"`

	QueuedLines       int64 `dynamodbav:"queued_lines,omitempty"`
	RunningBatches    int   `dynamodbav:"running_batches,omitempty"`
	FileBytes         int64 `dynamodbav:"file_bytes,omitempty"`
	RequestsPerMinute int   `dynamodbav:"requests_per_minute,omitempty"`

	CreatedAt int64 `dynamodbav:"created_at"`
	UpdatedAt int64 `dynamodbav:"updated_at"`
	Ver       int64 `dynamodbav:"ver"`
}

func newTenantItem(t access.Tenant) tenantItem {
	i := tenantItem{
		head: newHead(tenantKey(t.Name), time.Time{}), Tenant: t.Name,
		QueuedLines: t.Limits.QueuedLines, RunningBatches: t.Limits.RunningBatches,
		FileBytes: t.Limits.FileBytes, RequestsPerMinute: t.Limits.RequestsPerMinute,
		CreatedAt: millis(t.CreatedAt), UpdatedAt: millis(t.UpdatedAt), Ver: t.Ver,
	}
	i.TenantPK, i.TenantSK = tenantRecords, t.Name
	if d := t.Drop; d != nil {
		i.DropPrincipal, i.DropEndpoint, i.DropWindow, i.DropSince = d.Principal, d.Endpoint, d.Window, millis(d.Since)
	}
	return i
}

func (i tenantItem) record() access.Tenant {
	t := access.Tenant{
		Name: i.Tenant,
		Limits: access.Limits{
			QueuedLines: i.QueuedLines, RunningBatches: i.RunningBatches, FileBytes: i.FileBytes, RequestsPerMinute: i.RequestsPerMinute,
		},
		CreatedAt: fromMillis(i.CreatedAt), UpdatedAt: fromMillis(i.UpdatedAt), Ver: i.Ver,
	}
	if i.DropPrincipal != "" {
		t.Drop = &access.Drop{Principal: i.DropPrincipal, Endpoint: i.DropEndpoint, Window: i.DropWindow, Since: fromMillis(i.DropSince)}
	}
	return t
}

// The writes of a tenant's record, which have no number in the design's table. As
// in conditions.go.

func insertTenant() expression.ConditionBuilder { return absent() }

// replaceTenant changes a record. What ver stops:
//
//  1. Two people read a record, one to switch the door off, one to set a limit.
//  2. The door is off; then the limit is written with the rest as it was read.
//  3. The door would be on again, and nobody would know.
//
// Refused, the second one reads again.
func replaceTenant(i tenantItem, seen int64) write {
	u := next().Set(name("created_at"), value(i.CreatedAt)).Set(name("updated_at"), value(i.UpdatedAt))
	for _, a := range []struct {
		name  string
		none  bool
		value any
	}{
		{"drop_principal", i.DropPrincipal == "", i.DropPrincipal},
		{"drop_endpoint", i.DropEndpoint == "", i.DropEndpoint},
		{"drop_window", i.DropWindow == "", i.DropWindow},
		{"drop_since", i.DropSince == 0, i.DropSince},
		{"queued_lines", i.QueuedLines == 0, i.QueuedLines},
		{"running_batches", i.RunningBatches == 0, i.RunningBatches},
		{"file_bytes", i.FileBytes == 0, i.FileBytes},
		{"requests_per_minute", i.RequestsPerMinute == 0, i.RequestsPerMinute},
	} {
		if a.none {
			u = u.Remove(name(a.name))
		} else {
			u = u.Set(name(a.name), value(a.value))
		}
	}
	return write{when: is("ver", seen), then: u}
}
