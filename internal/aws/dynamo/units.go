package dynamo

import (
	"bytes"
	"math"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

// What DynamoDB bills, by its own rules. On AWS the service says what a call
// consumed, and that is what is counted (see counted); these rules are for what
// it doesn't say, and for the bench, which asks what a batch would consume. The
// emulator's answers are held against them.
//
//	write of an item    its size before or after, whichever is larger, in
//	                    started KB; at least one unit, refused or not
//	entry of an index   the same for the part of the item that the index holds:
//	                    none where that stays as it is, two where it moves
//	read                what was read, in started 4 KB; half where a stale answer
//	                    is good enough

// Item is an item as the table would store it.
type Item struct{ a attributes }

// PartItem is p's item.
func PartItem(p batch.Part) (Item, error) {
	a, err := encode(newPartItem(p))
	return Item{a}, err
}

// BatchItem is the META of b.
func BatchItem(b batch.Batch) (Item, error) {
	a, err := encode(newBatchItem(b))
	return Item{a}, err
}

// Bytes is the item's size as DynamoDB counts it; 0 for no item.
func (i Item) Bytes() int { return sizeOfItem(i.a) }

// Units are what one call consumed, by where.
type Units struct{ Table, Due, Tenant float64 }

// Total is the sum, which is what is billed. Limits of a partition go by where.
func (u Units) Total() float64 { return u.Table + u.Due + u.Tenant }

// WriteUnits is what it takes to make before become after; the zero Item stands
// for none.
func WriteUnits(before, after Item) Units {
	return Units{
		Table:  writeUnits(max(before.Bytes(), after.Bytes())),
		Due:    indexUnits(dueEntry(before.a), dueEntry(after.a), attrDuePK, attrDueAt),
		Tenant: indexUnits(tenantEntry(before.a), tenantEntry(after.a), attrTenantPK, attrTenantSK),
	}
}

// ReadUnits is what reading so many bytes takes.
func ReadUnits(size int, consistent bool) float64 {
	units := math.Max(1, math.Ceil(float64(size)/4096))
	if !consistent {
		units /= 2
	}
	return units
}

func writeUnits(size int) float64 { return math.Max(1, math.Ceil(float64(size)/1024)) }

// dueEntry is what the index due holds of an item: keys only. nil where the item
// isn't in it.
func dueEntry(a attributes) attributes {
	if a[attrDuePK] == nil || a[attrDueAt] == nil {
		return nil
	}
	return attributes{attrPK: a[attrPK], attrSK: a[attrSK], attrDuePK: a[attrDuePK], attrDueAt: a[attrDueAt]}
}

// tenantEntry is what the index tenant holds: the whole item.
func tenantEntry(a attributes) attributes {
	if a[attrTenantPK] == nil || a[attrTenantSK] == nil {
		return nil
	}
	return a
}

func indexUnits(before, after attributes, keys ...string) float64 {
	switch {
	case before == nil && after == nil:
		return 0
	case before == nil:
		return writeUnits(sizeOfItem(after))
	case after == nil:
		return writeUnits(sizeOfItem(before))
	}
	for _, k := range keys {
		if !same(before[k], after[k]) {
			return writeUnits(sizeOfItem(before)) + writeUnits(sizeOfItem(after))
		}
	}
	if len(before) == len(after) {
		changed := false
		for name, v := range after {
			changed = changed || !same(before[name], v)
		}
		if !changed {
			return 0
		}
	}
	return writeUnits(max(sizeOfItem(before), sizeOfItem(after)))
}

func same(a, b types.AttributeValue) bool {
	switch a := a.(type) {
	case *types.AttributeValueMemberS:
		b, ok := b.(*types.AttributeValueMemberS)
		return ok && a.Value == b.Value
	case *types.AttributeValueMemberN:
		b, ok := b.(*types.AttributeValueMemberN)
		return ok && a.Value == b.Value
	case *types.AttributeValueMemberB:
		b, ok := b.(*types.AttributeValueMemberB)
		return ok && bytes.Equal(a.Value, b.Value)
	}
	return false // lists and maps are in no index but tenant, where ver differs anyway
}

// sizeOfItem counts names and values. What DynamoDB adds for storage (100 bytes an
// item) it doesn't bill with a write.
func sizeOfItem(a attributes) (n int) {
	for name, v := range a {
		n += len(name) + sizeOf(v)
	}
	return n
}

// sizeOf is how DynamoDB counts a value. Of a number the documentation says
// "approximately": a byte for two digits, and one; the second here is to be on
// the safe side.
func sizeOf(v types.AttributeValue) (n int) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 2
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberBOOL, *types.AttributeValueMemberNULL:
		return 1
	case *types.AttributeValueMemberL:
		n = 3
		for _, e := range v.Value {
			n += 1 + sizeOf(e)
		}
	case *types.AttributeValueMemberM:
		n = 3
		for name, e := range v.Value {
			n += 1 + len(name) + sizeOf(e)
		}
	case *types.AttributeValueMemberSS:
		for _, e := range v.Value {
			n += len(e)
		}
	default:
		panic("dynamo: a value of a type that no item has")
	}
	return n
}
