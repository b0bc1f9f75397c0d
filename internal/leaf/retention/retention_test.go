package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// hours returns a snapshot of an age.
func hours(tag string, age int, labels map[string]string) Snapshot {
	return Snapshot{Tag: tag, Made: noon.Add(-time.Duration(age) * time.Hour), Labels: labels}
}

func planned(all ...Snapshot) string {
	var tags []string
	for _, d := range Plan(all, noon) {
		tags = append(tags, strings.TrimSuffix(d.Tag+"/"+d.Held, "/"))
	}
	return strings.Join(tags, " ")
}

func TestExpiry(t *testing.T) {
	day := map[string]string{Expires: "24h"}
	held := hours("held", 30, day)
	held.Held = "in use"
	got := planned(hours("young", 23, day), hours("old", 24, day), hours("free", 9999, nil), held,
		hours("pinned", 99, map[string]string{Expires: "1h", Pin: "true"}),
		hours("unpinned", 99, map[string]string{Expires: "1h", Pin: "false"}),
		hours("at", 1, map[string]string{Expires: noon.Format(time.RFC3339)}),
		hours("later", 99, map[string]string{Expires: noon.Add(time.Second).Format(time.RFC3339)}),
		hours("unreadable", 99, map[string]string{Expires: "soon", Lineage: "x", KeepLast: "1"}))
	if want := "at held/in use old unpinned"; got != want {
		t.Errorf("due: %s, want %s", got, want)
	}
}

func TestKeepLast(t *testing.T) {
	last := func(n int, lineage string) map[string]string {
		return map[string]string{KeepLast: fmt.Sprint(n), Lineage: lineage}
	}
	var all []Snapshot
	for age := range 5 {
		all = append(all, hours(fmt.Sprint("n", age), age, last(2, "nightly")))
	}
	if got, want := planned(all...), "n2 n3 n4"; got != want {
		t.Errorf("due: %s, want %s", got, want)
	}
	all[0].Labels = last(4, "nightly") // the newest decides
	if got, want := planned(all...), "n4"; got != want {
		t.Errorf("due with 4: %s, want %s", got, want)
	}
	all[0].Broken = true // and a broken one neither counts nor decides
	if got, want := planned(all...), "n3 n4"; got != want {
		t.Errorf("due with a broken one: %s, want %s", got, want)
	}
	all[1].Labels = map[string]string{KeepLast: "2", Lineage: "nightly", Pin: ""}
	if got, want := planned(all...), "n4"; got != want {
		t.Errorf("due with a pinned one: %s, want %s", got, want)
	}
	all[4].Owner = "other"
	if got := planned(all...); got != "" {
		t.Errorf("a tenant's series reaches into another's: %s", got)
	}
}

// Snapshots without a name of a lineage are a series of their sandbox, and only those with the label.
func TestTheLineageOfASandbox(t *testing.T) {
	of := func(tag string, age int, source string) Snapshot {
		s := hours(tag, age, map[string]string{KeepLast: "1"})
		s.Source = source
		return s
	}
	byHand := hours("by-hand", 9, nil)
	byHand.Source = "sb-1"
	got := planned(of("a", 1, "sb-1"), of("b", 2, "sb-1"), of("c", 3, "sb-2"), byHand, of("d", 4, ""), of("e", 5, ""))
	if got != "b" {
		t.Errorf("due: %s, want b", got)
	}
}

func TestBadValues(t *testing.T) {
	for key, values := range map[string][]string{
		Pin:      {"yes", "0", "TRUE"},
		Expires:  {"", "-1h", "0", "24", "2026-01-02", "9999999h"},
		KeepLast: {"", "0", "-1", "1.5", "100001", "99999999999999999999"},
	} {
		for _, v := range values {
			if err := Check(map[string]string{key: v}); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s=%q: %v", key, v, err)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	before := map[string]string{Expires: "24h", "job": "7"}
	if got := Resolve(before, noon); got[Expires] != "2026-01-03T12:00:00Z" || got["job"] != "7" || before[Expires] != "24h" {
		t.Errorf("got %v from %v", got, before)
	}
	if got := Without(map[string]string{Pin: "", Expires: "1h", Lineage: "a", KeepLast: "1", "b": "c"}); len(got) != 1 {
		t.Errorf("rules remain: %v", got)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add("true", "24h", "nightly", "3")
	f.Add("", "2026-01-02T12:00:00Z", "", "x")
	f.Fuzz(func(t *testing.T, pin, expires, lineage, last string) {
		labels := map[string]string{Pin: pin, Expires: expires, Lineage: lineage, KeepLast: last}
		due := Plan([]Snapshot{hours("a", 1, labels), hours("b", 2, labels)}, noon)
		r, err := Of(labels, noon)
		if (err != nil || r.Pinned) && len(due) > 0 {
			t.Errorf("%v ends %v", labels, due)
		}
		if slices.ContainsFunc(due, func(d Due) bool { return d.Why == "" }) {
			t.Errorf("%v: no reason in %v", labels, due)
		}
	})
}

// A copy lives no longer than its original.
func TestACopyExpiresWithItsOriginal(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for was, want := range map[string]string{
		"1h": "2026-01-02T04:04:05Z", "2026-05-06T07:08:09Z": "2026-05-06T07:08:09Z", Never: Never, "soon": "soon",
	} {
		labels := map[string]string{Expires: was, "a": "b"}
		if got := OfCopy(labels, made); got[Expires] != want || got["a"] != "b" || labels[Expires] != was {
			t.Errorf("%s becomes %v", was, got)
		}
	}
	if got := OfCopy(nil, made); got != nil {
		t.Errorf("no labels become %v", got)
	}
}
