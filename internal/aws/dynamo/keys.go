package dynamo

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

// Attributes of the table's key and of its two indexes.
const (
	attrPK = "pk"
	attrSK = "sk"

	dueIndex  = "due"
	attrDuePK = "due_pk"
	attrDueAt = "due_at"

	tenantIndex  = "tenant"
	attrTenantPK = "tenant_pk"
	attrTenantSK = "tenant_sk"
)

// dueShards spreads the due index over as many partitions, so that no single
// one takes every checkpoint's write.
const dueShards = 16

// maxID is the longest id that is looked up: the table's bound for a sort key.
// A partition key has room for it and a tenant.
const maxID = 1024

type key struct{ pk, sk string }

func batchPK(tenant, id string) string { return "T#" + tenant + "#B#" + id }

func metaKey(tenant, id string) key { return key{batchPK(tenant, id), "META"} }

const partPrefix = "PART#"

// partKey's number has a fixed width, so that parts sort by number.
func partKey(k batch.PartKey) key {
	return key{batchPK(k.Tenant, k.Batch), fmt.Sprintf(partPrefix+"%08d", k.N)}
}

func fileKey(tenant, id string) key { return key{"F#" + tenant, id} }

func accessKey(hash string) key { return key{"KEY#" + hash, "KEY"} }

// storable reports whether id can be part of a key at all. What can't is not
// found: it never was stored.
func storable(id string) bool { return id != "" && len(id) <= maxID }

func (k key) attributes() attributes {
	return attributes{
		attrPK: &types.AttributeValueMemberS{Value: k.pk},
		attrSK: &types.AttributeValueMemberS{Value: k.sk},
	}
}

// shard is the item's partition in the due index. It depends on the key alone,
// so that an item never moves.
func (k key) shard() string {
	h := fnv.New32a()
	h.Write([]byte(k.pk))
	h.Write([]byte{0})
	h.Write([]byte(k.sk))
	return fmt.Sprintf("DUE#%d", h.Sum32()%dueShards)
}

// The tenant index holds one collection of batches and one of files a tenant.

func tenantBatches(tenant string) string { return "B#" + tenant }

func tenantFiles(tenant string) string { return "F#" + tenant }

// tenantSK orders by creation, then id; the width lasts longer than the era.
func tenantSK(created time.Time, id string) string {
	return fmt.Sprintf("%015d#%s", millis(created), id)
}
