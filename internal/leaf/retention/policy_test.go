package retention

import (
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"
)

var tenantName = regexp.MustCompile(`^[a-z0-9_]{1,24}$`).MatchString

func TestSettingsOfTenants(t *testing.T) {
	p, err := ParsePolicy([]string{"expire=168h,keep-last=10", "team_a:max-expire=24h", "b:expire=1h,max-expire=1h"}, tenantName)
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]Defaults{
		"": {Expire: 168 * time.Hour, KeepLast: 10}, "other": {Expire: 168 * time.Hour, KeepLast: 10},
		"team_a": {MaxExpire: 24 * time.Hour}, "b": {Expire: time.Hour, MaxExpire: time.Hour},
	} {
		if got := p.For(tenant); got != want {
			t.Errorf("%q has %+v, want %+v", tenant, got, want)
		}
	}
	if got := (Policy{}).For("a"); got != (Defaults{}) {
		t.Errorf("the zero policy has %+v", got)
	}
}

func TestBadSettings(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no rule",
		"expire":                   "want a duration",
		"expire=0s":                "want a duration",
		"expire=-1h":               "want a duration",
		"expire=900000h":           "at most 100 years",
		"expire=7d":                "want a duration",
		"keep-last=0":              "want 1 to",
		"keep-last=100001":         "want 1 to",
		"keep-last=1,keep-last=2":  "twice",
		"keep=1":                   `"keep" is no rule`,
		"expire=2h,max-expire=1h":  "beyond max-expire",
		"Team-A:expire=1h":         "no name of a tenant",
		":expire=1h":               "no name of a tenant",
		"a:":                       "no rule",
		strings.Repeat("x", 1<<16): "no rule",
	} {
		_, err := ParsePolicy([]string{text}, tenantName)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	for _, twice := range [][]string{{"expire=1h", "keep-last=1"}, {"a:expire=1h", "a:keep-last=1"}} {
		if _, err := ParsePolicy(twice, tenantName); err == nil {
			t.Errorf("%q: no error", twice)
		}
	}
}

func TestTheRequestWinsOverADefault(t *testing.T) {
	d := Defaults{Expire: 24 * time.Hour, KeepLast: 5}
	for name, c := range map[string]struct{ set, want map[string]string }{
		"no rules":        {nil, map[string]string{Expires: "24h0m0s", KeepLast: "5"}},
		"an expiry":       {map[string]string{Expires: "100h"}, map[string]string{KeepLast: "5"}},
		"never and all":   {map[string]string{Expires: Never, KeepLast: All}, map[string]string{}},
		"a pin":           {map[string]string{Pin: "true"}, map[string]string{}},
		"an undone pin":   {map[string]string{Pin: "false"}, map[string]string{Expires: "24h0m0s", KeepLast: "5"}},
		"an unknown rule": {map[string]string{Expires: "soon"}, map[string]string{KeepLast: "5"}},
	} {
		if got := d.Labels(c.set); !maps.Equal(got, c.want) {
			t.Errorf("%s: adds %v, want %v", name, got, c.want)
		}
	}
	if got := (Defaults{MaxExpire: time.Hour}).Labels(nil); got[Expires] != "1h0m0s" {
		t.Errorf("a maximum without a default adds %v", got)
	}
	if r, err := Of(map[string]string{Expires: Never, KeepLast: All}, noon); err != nil || !r.Expires.IsZero() || r.KeepLast != 0 {
		t.Errorf("never and all are %+v, %v", r, err)
	}
}

func TestTheMaximumOfATenant(t *testing.T) {
	d := Defaults{MaxExpire: 24 * time.Hour}
	at := func(d time.Duration) string { return noon.Add(d).Format(time.RFC3339) }
	for name, c := range map[string]struct {
		set   map[string]string
		fails bool
	}{
		"the maximum":     {map[string]string{Expires: "24h"}, false},
		"its last second": {map[string]string{Expires: at(24 * time.Hour)}, false},
		"past":            {map[string]string{Expires: at(-time.Hour)}, false},
		"more":            {map[string]string{Expires: "24h0m1s"}, true},
		"a second later":  {map[string]string{Expires: at(24*time.Hour + time.Second)}, true},
		"never":           {map[string]string{Expires: Never}, true},
		"no expiry":       {nil, true},
		"a pin":           {map[string]string{Expires: "1h", Pin: "true"}, true},
		"unreadable":      {map[string]string{Expires: "soon"}, true},
	} {
		if err := d.Bound(c.set, noon); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Defaults{}).Bound(map[string]string{Pin: ""}, noon); err != nil {
		t.Errorf("without a maximum: %v", err)
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add("a:expire=24h,keep-last=3,max-expire=48h")
	f.Add("expire=1ns")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy([]string{text}, tenantName)
		if err != nil {
			return
		}
		for _, tenant := range []string{"", "a"} {
			d := p.For(tenant)
			set := d.Labels(nil)
			if err := Check(set); err != nil {
				t.Errorf("%q gives labels that are refused: %v", text, err)
			}
			if d.MaxExpire > 0 && d.Bound(set, noon) != nil {
				t.Errorf("%q: the default is beyond the maximum", text)
			}
		}
	})
}
