package fieldnames

import (
	"encoding/json"
	"reflect"
	"testing"
)

type inner struct {
	Port int `json:"port"`
}

type Embedded struct {
	TTL float64 `json:"ttl_secs"`
}

type body struct {
	Embedded
	Args    []string          `json:"args"`
	Timeout float64           `json:"timeout_secs"`
	Env     map[string]string `json:"env"`
	Hosts   []inner           `json:"hosts"`
	By      map[string]*inner `json:"by"`
	Raw     json.RawMessage   `json:"raw"`
	Any     any               `json:"any"`
}

func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []Field
	}{
		{"all known", `{"args":[],"ttl_secs":1,"env":{"X":"y"},"raw":{"x":1},"any":{"x":1},"hosts":[{"port":1}]}`, nil},
		{"another case", `{"Timeout_Secs":1}`, []Field{{"Timeout_Secs", "timeout_secs", true}}},
		{"embedded", `{"ttl_sec":1}`, []Field{{"ttl_sec", "ttl_secs", true}}},
		{"far from all", `{"bogus":1}`, []Field{{"bogus", "args", false}}},
		{"in a list", `{"hosts":[{"port":1},{"prt":1}]}`, []Field{{"hosts[1].prt", "hosts[1].port", true}}},
		{"in a map", `{"by":{"a":{"Port":1}}}`, []Field{{"by.a.Port", "by.a.port", true}}},
		{"no JSON", `{`, nil}, {"null", `null`, nil}, {"another type", `[{"x":1}]`, nil},
	} {
		if got := Unknown([]byte(c.body), new(body)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func FuzzUnknown(f *testing.F) {
	f.Add([]byte(`{"hosts":[{"prt":1}],"by":{"a":{"x":{}}},"Args":null}`))
	f.Add([]byte(`[[{"":1}]]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := Unknown(b, new(body)); len(got) > maxFields {
			t.Errorf("%d fields", len(got))
		}
	})
}
