package dynamo

import (
	"fmt"
	"hash/fnv"
	"strconv"
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

// The due index is spread over batch.DueShards partitions, so that no single one
// takes every checkpoint's write; dead parts have as many of their own, so that
// they can be listed without reading everything that is at work.
const (
	duePrefix  = "DUE#"
	deadPrefix = "DEAD#"
)

// maxID is the longest id that is looked up: the table's bound for a sort key.
// A partition key has room for it and a tenant.
const maxID = 1024

type key struct{ pk, sk string }

func batchPK(tenant, id string) string { return "T#" + tenant + "#B#" + id }

const metaSK = "META"

func metaKey(tenant, id string) key { return key{batchPK(tenant, id), metaSK} }

const partPrefix = "PART#"

// partKey's number has a fixed width, so that parts sort by number.
func partKey(k batch.PartKey) key {
	return key{batchPK(k.Tenant, k.Batch), fmt.Sprintf(partPrefix+"%08d", k.N)}
}

func fileKey(tenant, id string) key { return key{"F#" + tenant, id} }

const keyPrefix = "KEY#"

func accessKey(hash string) key { return key{keyPrefix + hash, "KEY"} }

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
func (k key) shard() string { return shard(duePrefix, k.shardNumber()) }

// deadShard is the one of a part while it is dead.
func (k key) deadShard() string { return shard(deadPrefix, k.shardNumber()) }

func shard(prefix string, n int) string { return prefix + strconv.Itoa(n) }

func (k key) shardNumber() int {
	h := fnv.New32a()
	h.Write([]byte(k.pk))
	h.Write([]byte{0})
	h.Write([]byte(k.sk))
	return int(h.Sum32() % batch.DueShards)
}

// The tenant index holds one collection of batches and one of files a tenant.

func tenantBatches(tenant string) string { return "B#" + tenant }

func tenantFiles(tenant string) string { return "F#" + tenant }

// tenantSK orders by creation, then id; the width lasts longer than the era.
func tenantSK(created time.Time, id string) string {
	return fmt.Sprintf("%015d#%s", millis(created), id)
}
