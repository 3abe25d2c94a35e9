package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/access"
)

// tenantKeys is a tenant's collection of keys in the tenant index, by creation.
// Keys of a program that didn't list them are in none, until they are touched.
func tenantKeys(tenant string) string { return "KEYS#" + tenant }

// keyItem is the record of an API key.
type keyItem struct {
	head
	Hash       string         `dynamodbav:"hash"`
	Tenant     string         `dynamodbav:"tenant"`
	Principal  string         `dynamodbav:"principal"`
	Scopes     []access.Scope `dynamodbav:"scopes"`
	Name       string         `dynamodbav:"name"`
	CreatedAt  int64          `dynamodbav:"created_at"`
	ExpiresAt  int64          `dynamodbav:"expires_at,omitempty"`
	DisabledAt int64          `dynamodbav:"disabled_at,omitempty"` // absent until it is: conditions ask for that
	LastUsed   int64          `dynamodbav:"last_used,omitempty"`
	CreatedBy  string         `dynamodbav:"created_by,omitempty"`
	Replaces   string         `dynamodbav:"replaces,omitempty"`
	ReplacedBy string         `dynamodbav:"replaced_by,omitempty"` // absent until it is: conditions ask for that
}

func newKeyItem(k access.Key) keyItem {
	i := keyItem{
		head: newHead(accessKey(k.Hash), time.Time{}),
		Hash: k.Hash, Tenant: k.Tenant, Principal: k.Principal, Scopes: k.Scopes, Name: k.Name,
		CreatedAt: millis(k.CreatedAt), ExpiresAt: millis(k.ExpiresAt), DisabledAt: millis(k.DisabledAt), LastUsed: millis(k.LastUsed),
		CreatedBy: k.CreatedBy, Replaces: k.Replaces, ReplacedBy: k.ReplacedBy,
	}
	i.TenantPK, i.TenantSK = tenantKeys(k.Tenant), tenantSK(k.CreatedAt, k.Hash)
	return i
}

func (i keyItem) key() access.Key {
	return access.Key{
		Hash: i.Hash, Tenant: i.Tenant, Principal: i.Principal, Scopes: i.Scopes, Name: i.Name,
		CreatedAt: fromMillis(i.CreatedAt), ExpiresAt: fromMillis(i.ExpiresAt), DisabledAt: fromMillis(i.DisabledAt), LastUsed: fromMillis(i.LastUsed),
		CreatedBy: i.CreatedBy, Replaces: i.Replaces, ReplacedBy: i.ReplacedBy,
	}
}

// The writes of a key's record, which have no number in the design's table. As in
// conditions.go. That there is one at all is asked with its version (readable).

func insertKey() expression.ConditionBuilder { return absent() }

// disableKey ends a key. That it isn't disabled yet keeps the time of the first: in
// a leak's history it is that one that counts.
func disableKey(tenant string, now time.Time) write {
	return write{
		when: is("tenant", tenant).And(name("disabled_at").AttributeNotExists()),
		then: expression.Set(name("disabled_at"), value(millis(now))),
	}
}

// replaceKey lets a key end that was rotated. What its conditions stop:
//
//  1. Two people read a key and rotate it. Each would be shown a secret, and the
//     record would name the later successor only. The second is refused on
//     replaced_by.
//  2. Somebody disables a key that leaked, and somebody else, who read it before,
//     rotates it. The thief's key stays disabled in any order; but the new one would
//     be for a key that nobody wanted any more.
func replaceKey(tenant, by string, until time.Time) write {
	return write{
		when: is("tenant", tenant).And(name("disabled_at").AttributeNotExists(), name("replaced_by").AttributeNotExists()),
		then: expression.Set(name("replaced_by"), value(by)).
			Set(name("expires_at"), value(millis(until))),
	}
}

// touchKey records the day of a use, and puts the key into its tenant's list, where
// one of an older program isn't. A day never goes back: processes with clocks apart
// would write it over and over around midnight.
func touchKey(k access.Key, day time.Time) write {
	return write{
		when: name("last_used").AttributeNotExists().Or(name("last_used").LessThan(value(millis(day)))),
		then: expression.Set(name("last_used"), value(millis(day))).
			Set(name(attrTenantPK), value(tenantKeys(k.Tenant))).
			Set(name(attrTenantSK), value(tenantSK(k.CreatedAt, k.Hash))),
	}
}
