package storetest

import (
	"context"
	"reflect"

	"holdfast/internal/bridge"
)

// bridgeNamed: a reader that knows an index row only finds what it stands for.
func bridgeNamed(t T, p BridgePorts) {
	r := claimed(t, p, token())
	got := value(p.Store.Row(t.Context(), r.Tenant, r.Name()))(t, "row")
	if want, _ := p.Look(t, r.Key); !reflect.DeepEqual(got, want) || got.Key != r.Key {
		t.Errorf("row is %+v, want %+v", got, want)
	}
	for _, k := range []bridge.Key{{Tenant: tenant(), CorrelationID: r.CorrelationID}, {Tenant: r.Tenant, CorrelationID: unique()}} {
		refuses(t, "row that isn't there", fault(p.Store.Row(t.Context(), k.Tenant, k.Name())), bridge.ErrNotFound)
	}
	interrupts(t, map[string]func(context.Context) error{
		"Row": func(ctx context.Context) error { return fault(p.Store.Row(ctx, r.Tenant, r.Name())) },
	})
}
