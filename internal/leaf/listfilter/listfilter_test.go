package listfilter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	rules = Rules{Label: nil, Name: nil, Since: nil, Before: nil, "status": {"running", "paused"}, "snapshot": nil}
	list  = []Entry{
		{Name: "sb-1", Made: time.Unix(1, 0), Fields: fields("running", "a")},
		{Name: "sb-2", Made: time.Unix(2, 0), Fields: fields("paused", "a"),
			Labels: map[string]string{"job": "7", "empty": ""}},
		{Name: "sb-3", Short: "3", Made: time.Unix(3, 0), Fields: fields("running", "b", "short-b"),
			Labels: map[string]string{"job": "8=9"}},
	}
)

func fields(status string, snapshot ...string) map[string][]string {
	return map[string][]string{"status": {status}, "snapshot": snapshot}
}

func selected(t *testing.T, filters ...string) string {
	t.Helper()
	f, err := Parse(filters, rules)
	if err != nil {
		t.Fatal(err)
	}
	some, err := Select(f, list, func(e Entry) Entry { return e })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range some {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

func TestSelect(t *testing.T) {
	for _, row := range []struct{ filters, want string }{
		{"", "sb-1 sb-2 sb-3"},
		{"label=job", "sb-2 sb-3"},
		{"label=job=7", "sb-2"},
		{"label=job=", ""},
		{"label=empty=", "sb-2"},
		{"label=job=8=9", "sb-3"},
		{"label=job label=empty", "sb-2"},
		{"label=job=7 label=job=8=9", ""},
		{"status=running", "sb-1 sb-3"},
		{"status=running status=paused", "sb-1 sb-2 sb-3"},
		{"status=running snapshot=a", "sb-1"},
		{"snapshot=short-b", "sb-3"},
		{"name=b-2 name=b-3", "sb-2 sb-3"},
		{"name=sb-22", ""},
		{"since=sb-1", "sb-2 sb-3"},
		{"before=sb-3", "sb-1 sb-2"},
		{"since=sb-1 before=sb-3", "sb-2"},
		{"since=sb-1 before=3", "sb-2"},
		{"since=sb-1 since=sb-2 before=sb-3", ""},
	} {
		if got := selected(t, strings.Fields(row.filters)...); got != row.want {
			t.Errorf("%q selects %q, want %q", row.filters, got, row.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for filter, want := range map[string]string{
		"colour=red":                         `filter "colour" is not known here: want before, label, name, since, snapshot, status`,
		"Status=running":                     "is not known here",
		"status":                             "want status=VALUE",
		"name=":                              "want name=VALUE",
		"":                                   "is not known here",
		"status=asleep":                      `filter status="asleep": want running, paused`,
		"label=" + strings.Repeat("x", 1024): "has 1030 bytes",
		"\x1b[2J\n=1":                        `"\x1b[2J\n"`,
	} {
		_, err := Parse([]string{filter}, rules)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%.40q: got %v, want %q", filter, err, want)
		}
	}
	if _, err := Parse(slices.Repeat([]string{"name=x"}, MaxFilters+1), rules); err == nil {
		t.Error("33 filters were accepted")
	}
	f, err := Parse([]string{"since=sb-9"}, rules)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Select(f, list, func(e Entry) Entry { return e }); err == nil {
		t.Error("an entry that is not in the list was accepted")
	}
}

// A full list with the most and the longest filters is quick.
func BenchmarkSelect(b *testing.B) {
	long := make([]Entry, 1000)
	for i := range long {
		long[i] = Entry{Name: fmt.Sprintf("sb-%d", i), Made: time.Unix(int64(i), 0), Labels: map[string]string{}}
		for k := range 64 {
			long[i].Labels[fmt.Sprintf("key-%d", k)] = strings.Repeat("v", 200)
		}
	}
	filters := slices.Repeat([]string{"label=key-63=" + strings.Repeat("v", 200)}, MaxFilters)
	for b.Loop() {
		f, err := Parse(filters, rules)
		if err != nil {
			b.Fatal(err)
		}
		if some, err := Select(f, long, func(e Entry) Entry { return e }); err != nil || len(some) != len(long) {
			b.Fatal(len(some), err)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("label=job=7", "since=sb-1")
	f.Add("status=running", "before=sb-3")
	f.Fuzz(func(t *testing.T, a, b string) {
		fi, err := Parse([]string{a, b}, rules)
		if err == nil {
			_, err = Select(fi, list, func(e Entry) Entry { return e })
		}
		if err != nil && (len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("the error is %q", err)
		}
	})
}
