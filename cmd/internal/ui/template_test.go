package ui

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

type usage struct {
	Bytes int64 `json:"bytes"`
}

type common struct {
	Owner string `json:"owner,omitempty"`
}

type thing struct {
	ID     string             `json:"id"`
	Size   int64              `json:"size_bytes,omitempty"`
	Share  float64            `json:"share,omitempty"`
	Use    *usage             `json:"use,omitempty"`
	PID    *int               `json:"pid"`
	Tags   []string           `json:"tags,omitempty"`
	Parts  []usage            `json:"parts,omitempty"`
	Detail map[string]string  `json:"detail,omitempty"`
	Times  map[string]float64 `json:"times,omitempty"`
	At     time.Time          `json:"at"`
	hidden int
	common
}

func things() []thing {
	return []thing{
		{ID: "a", Size: 1 << 40, Share: 0.5, Use: &usage{7}, Tags: []string{"x", "y"}, Parts: []usage{{1}, {2}},
			Detail: map[string]string{"why": "so"}, Times: map[string]float64{"boot": 1.5}, common: common{"acme"}},
		{ID: "long-name", hidden: 1},
	}
}

func TestTemplates(t *testing.T) {
	for name, row := range map[string]struct{ template, want string }{
		"a field":            {`{{.id}}`, "a\nlong-name\n"},
		"a number":           {`{{.size_bytes}} {{.share}}`, "1099511627776 0.5\n \n"},
		"a nested one":       {`{{.use.bytes}}`, "7\n\n"},
		"an absent object":   {`{{if .use}}yes{{else}}no{{end}}`, "yes\nno\n"},
		"null":               {`<{{.pid}}>`, "<>\n<>\n"},
		"an embedded one":    {`{{.owner}}`, "acme\n\n"},
		"join":               {`{{join .tags ", "}}`, "x, y\n\n"},
		"join with a tab":    {`{{join .tags "\t"}}`, "x\ty\n\n"},
		"upper and lower":    {`{{upper .id}} {{lower "ABC"}}`, "A abc\nLONG-NAME abc\n"},
		"json":               {`{{json .tags}} {{json .use}}`, "[\"x\",\"y\"] {\"bytes\":7}\nnull null\n"},
		"all in JSON":        {`{{if .use}}{{json .}}{{end}}`, `{"at":"0001-01-01T00:00:00Z","detail":{"why":"so"},"id":"a","owner":"acme","parts":[{"bytes":1},{"bytes":2}],"share":0.5,"size_bytes":1099511627776,"tags":["x","y"],"times":{"boot":1.5},"use":{"bytes":7}}` + "\n\n"},
		"range":              {`{{range .parts}}{{.bytes}} {{$.id}};{{end}}`, "1 a;2 a;\n\n"},
		"with":               {`{{with .use}}{{.bytes}}{{end}}`, "7\n\n"},
		"keys of a map":      {`{{.detail.why}}{{.detail.other}}`, "so\n\n"},
		"numbers of a map":   {`{{.times.boot}}`, "1.5\n\n"},
		"escapes":            {`{{.id}}\t1\n2`, "a\t1\n2\nlong-name\t1\n2\n"},
		"compared":           {`{{if gt (len .tags) 1}}{{.id}}{{end}}`, "a\n\n"},
		"a table":            {`table {{.id}}\t{{.size_bytes}}\t{{.use.bytes}}`, "ID         SIZE BYTES     BYTES\na          1099511627776  7\nlong-name                 \n"},
		"a table of length":  {`table {{.id | upper}}\t{{len .tags}}`, "ID         TAGS\nA          2\nLONG-NAME  0\n"},
		"text of a terminal": {"{{.id}}{{\"\x1b[31m\"}}", "a[31m\nlong-name[31m\n"},
	} {
		var out bytes.Buffer
		p := Printer{Out: &out}
		if err := p.Format.Set(row.template); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := p.Value(things()); err != nil || out.String() != row.want {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", name, err, out.String(), row.want)
		}
	}
}

func TestTemplatesWithMistakes(t *testing.T) {
	for template, want := range map[string]string{
		`{{.idd}}`:                           `the result has no field "idd"; its fields are id, size_bytes, share, use, pid`,
		`{{.use.byte}}`:                      `.use has no field "byte"; its fields are bytes`,
		`{{.id.x}}`:                          `.id has no field "x"; it has no fields`,
		`{{range .parts}}{{.id}}{{end}}`:     `the result has no field "id"; its fields are bytes`,
		`{{range .parts}}{{$.byte}}{{end}}`:  `has no field "byte"`,
		`{{with .use}}{{else}}{{.x}}{{end}}`: `has no field "x"`,
		`{{if .x}}{{end}}`:                   `has no field "x"`,
		`{{upper (.x)}}`:                     `has no field "x"`,
		`{{join .id ","}}`:                   "join a: want a list",
		`{{.hidden}}`:                        `has no field "hidden"`,
	} {
		for _, list := range [][]thing{things(), {}} {
			if len(list) == 0 && strings.HasPrefix(template, "{{join") {
				continue
			}
			p := Printer{Out: &bytes.Buffer{}}
			if err := p.Format.Set(template); err != nil {
				t.Errorf("%s: %v", template, err)
				continue
			}
			if err := p.Value(list); !errors.As(err, &TemplateError{}) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", template, err, want)
			}
		}
	}
	for template, want := range map[string]string{
		"{{": "1: ", "{{.id": "unclosed action", "{{nope .id}}": `function "nope" not defined`, "": "empty", "table ": "empty",
		"{{if .id}}": "unexpected EOF",
	} {
		if err := new(Template).Set(template); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "template: ") {
			t.Errorf("%q: got %v, want %q", template, err, want)
		}
	}
}

func TestTemplatesOfSingleResults(t *testing.T) {
	var out bytes.Buffer
	p := Printer{Out: &out}
	if err := p.Format.Set(`table {{.id}}\t{{.owner}}`); err != nil {
		t.Fatal(err)
	}
	for _, one := range things()[:1] {
		for range 2 {
			if err := p.ValueLine(nil, one); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := "ID  OWNER\na   acme\na  acme\n"; out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	if err := p.Value([]thing(nil)); err != nil || out.String() != "" {
		t.Errorf("an empty list: %q, %v", out.String(), err)
	}
}
