package events

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// read returns up to n events of a view after an ID.
func read(t *testing.T, v View, after uint64, n int) (got []Event) {
	t.Helper()
	err := v.Follow(t.Context(), after, func(e Event) error {
		if got = append(got, e); len(got) == n {
			return errEnough
		}
		return nil
	})
	if err != errEnough {
		t.Fatal(err)
	}
	return got
}

func TestTheOperatorLearnsOfEventsThatAnyRingDropped(t *testing.T) {
	const last = 7 << idBits
	l := New(last, 4, clock)
	l.Add(Event{Kind: "k", Owner: "quiet"}) // 1
	for range 10 {
		l.Add(Event{Kind: "k", Owner: "loud"}) // 2 to 11; 8 to 11 are kept
	}
	l.Add(Event{Kind: "k", Owner: "quiet"}) // 12
	for _, c := range []struct {
		name  string
		after uint64
		want  []uint64
		gap   bool
	}{
		{"all that are kept", 0, []uint64{1, 8, 9, 10, 11, 12}, false},
		{"before a dropped event", last + 1, []uint64{7, 8, 9, 10, 11, 12}, true},
		{"of an earlier daemon", 6 << idBits, []uint64{0, 1, 8}, true},
		{"at the last dropped event", last + 7, []uint64{8, 9}, false},
		{"an ID that was never given", last + 20, []uint64{12}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := read(t, l.Of(""), c.after, len(c.want))
			for i, e := range got {
				if e.ID != last+c.want[i] || (e.Kind == KindGap) != (c.gap && i == 0) {
					t.Errorf("event %d is %+v, want %d", i, e, c.want[i])
				}
			}
		})
	}
	if got := read(t, l.Of("loud"), last+1, 2); got[0].Kind != KindGap || got[0].ID != last+6 || got[1].ID != last+7 {
		t.Errorf("the loud tenant sees %+v", got)
	}
	if n := l.Of("loud").Last(); n != last+10 {
		t.Errorf("the loud tenant's last ID is %d", n-last)
	}
	if n := l.Of("new").Last(); n != last {
		t.Errorf("a new tenant's last ID is %d", n-last)
	}
}

// With more tenants than rings, the tenant idle longest loses its events, but its counter continues.
func TestTheNumberOfRingsIsBounded(t *testing.T) {
	l := New(0, 2, clock)
	l.Add(Event{Kind: "k"})
	for i := range 2 * maxRings {
		l.Add(Event{Kind: "k", Owner: fmt.Sprint(i)})
	}
	full := 0
	for owner, r := range l.rings {
		if owner != "" && len(r.kept) > 0 {
			full++
		}
	}
	if full != maxRings {
		t.Errorf("%d tenants have events, want %d", full, maxRings)
	}
	if got := read(t, l.Of(""), 0, 2); got[0].ID != 1 || got[1].ID != maxRings+2 {
		t.Errorf("the operator sees %+v", got)
	}
	for range 2 {
		l.Add(Event{Kind: "k", Owner: "0"})
	}
	got := read(t, l.Of("0"), 1, 2)
	if got[0].ID != 2 || got[1].ID != 3 {
		t.Errorf("the tenant whose events went sees %+v", got)
	}
}

// While many goroutines add events, readers of all views get each of their events once and in order.
func TestViewsUnderLoad(t *testing.T) {
	const tenants, each = 4, 500
	l := New(0, tenants*each, clock)
	var adding, reading sync.WaitGroup
	check := func(v View, want uint64) {
		reading.Go(func() {
			at := uint64(0)
			err := v.Follow(t.Context(), 0, func(e Event) error {
				if e.ID != at+1 || v.tenant != "" && e.Owner != v.tenant {
					return fmt.Errorf("view %q: %+v follows %d", v.tenant, e, at)
				}
				if at = e.ID; at == want {
					return errEnough
				}
				return nil
			})
			if err != errEnough {
				t.Error(err)
			}
		})
	}
	check(l.Of(""), tenants*each)
	for i := range tenants {
		owner := fmt.Sprint("t", i)
		check(l.Of(owner), each)
		adding.Go(func() {
			for range each {
				l.Add(Event{Kind: "k", Owner: owner})
			}
		})
	}
	adding.Wait()
	reading.Wait()
}

// large returns an event of maximal size.
func large(owner string) Event {
	d := map[string]string{}
	for i := range maxDetails {
		d[fmt.Sprint(i)] = strings.Repeat("d", maxDetail)
	}
	return Event{Kind: "k", Owner: owner, Detail: d}
}

// Rings are also limited by bytes: for a tenant, for the operator, and for all tenants together.
func TestRingsAreBoundedByBytes(t *testing.T) {
	l := New(0, 0, clock)
	for range 2 * tenantBytes / sizeOf(large("")) {
		l.Add(large("a"))
	}
	a := l.rings["a"]
	if a.bytes > tenantBytes || a.bytes < tenantBytes-100<<10 || len(a.kept) >= TenantRoom {
		t.Errorf("a tenant's %d events have %d bytes", len(a.kept), a.bytes)
	}
	for range 2 * operatorBytes / sizeOf(large("")) {
		l.Add(large(""))
	}
	if op := l.rings[""]; op.bytes > operatorBytes || op.bytes < operatorBytes-100<<10 {
		t.Errorf("the operator's %d events have %d bytes", len(op.kept), op.bytes)
	}
	l.Add(Event{Kind: "k", Owner: "a"}) // a small event replaces at most one
	got := read(t, l.Of("a"), 1, len(a.kept)+1)
	if got[0].Kind != KindGap || got[len(got)-1].ID != l.Of("a").Last() || got[1].ID != got[0].ID+1 {
		t.Errorf("the tenant reads %d to %d", got[0].ID, got[len(got)-1].ID)
	}
	for i := range 2 * tenantsBytes / tenantBytes {
		for range TenantRoom / 64 {
			l.Add(large(fmt.Sprint("tenant ", i)))
		}
	}
	sum, full := 0, 0
	for owner, r := range l.rings {
		of := 0
		for _, e := range r.kept {
			of += sizeOf(e)
		}
		if of != r.bytes {
			t.Errorf("%q has %d bytes and counts %d", owner, of, r.bytes)
		}
		if owner != "" {
			sum += of
			full += min(1, len(r.kept))
		}
	}
	if sum != l.bytes || sum > tenantsBytes || sum < tenantsBytes*9/10 || len(a.kept) != 0 {
		t.Errorf("%d tenants have %d bytes, counted %d; the first has %d events", full, sum, l.bytes, len(a.kept))
	}
	if got := read(t, l.Of(""), 1, 1); got[0].Kind != KindGap {
		t.Errorf("the operator is not told of what was dropped: %+v", got[0])
	}
}

// A blocked reader holds a limited number of events.
func TestAReaderTakesABoundedPortion(t *testing.T) {
	l := New(0, 0, clock)
	for range 8 {
		l.Add(large("a"))
	}
	for _, tenant := range []string{"a", ""} {
		v := l.Of(tenant)
		src, at, _ := v.begin(0)
		buf, _, err := v.take(src, nil, at)
		if err != nil || len(buf) != 1+batchBytes/sizeOf(large("a")) && len(buf) != batchBytes/sizeOf(large("a")) {
			t.Errorf("tenant %q: %d events, %v", tenant, len(buf), err)
		}
		if got := read(t, v, 0, 8); got[7].ID != 8 {
			t.Errorf("tenant %q: the last is %d", tenant, got[7].ID)
		}
	}
}
