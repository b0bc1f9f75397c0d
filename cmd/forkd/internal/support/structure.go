package support

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// files removes secrets from files. Secrets in named fields are also removed from all other files,
// so the fields are read first. A file without its promised structure is left out.
func (r *Redactor) files(files []file) (out []file, failures []string) {
	for _, f := range files {
		var err error
		switch f.kind {
		case jsonText:
			f.text, err = r.json(f.text, true)
		case yamlText:
			f.text, err = r.yaml(f.text)
		case logText:
			f.text = r.jsonLines(f.text)
		}
		if err != nil {
			// The error of a parser may quote the text.
			failures = append(failures, f.name+": left out: it cannot be parsed, so its secrets are unknown")
			continue
		}
		out = append(out, f)
	}
	known := r.replacer()
	for i := range out {
		out[i].text = clean(known, out[i].text)
	}
	return out, failures
}

func (r *Redactor) json(text string, indent bool) (string, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("more than one value")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	err := e.Encode(r.scrub("", v))
	return b.String(), err
}

// jsonLines removes secrets from the lines of a log that are JSON objects.
func (r *Redactor) jsonLines(text string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "{") {
			if s, err := r.json(line, false); err == nil {
				line = s
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

func (r *Redactor) yaml(text string) (string, error) {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return "", err
	}
	if _, isText := v.(string); isText {
		return "", errors.New("no mapping")
	}
	b, err := yaml.Marshal(r.scrub("", v))
	return string(b), err
}

var (
	letters     = regexp.MustCompile(`[^a-z0-9]+`)
	secretField = regexp.MustCompile(`token|secret|passw|passphrase|credential|authorization|cookie|signature|` +
		`apikey|accesskey|privatekey`)
)

// guests are fields with data of guests and users: environments, arguments, contents.
var guests = []string{"env", "envs", "environ", "environment", "envvars", "args", "argv", "arguments", "cmd",
	"cmdline", "command", "exec", "program", "stdin", "stdout", "stderr", "output", "header", "headers", "content",
	"contents", "body", "key", "upstream", "entropy", "warmup", "start"}

// errorFields are fields with an error, which may end with output of a guest.
var errorFields = []string{"error", "err", "reason", "warning", "message", "msg"}

// scrub returns a value without secrets in its named fields, and learns their values.
func (r *Redactor) scrub(name string, v any) any {
	name = letters.ReplaceAllString(strings.ToLower(name), "")
	switch v := v.(type) {
	case map[string]any:
		for key, of := range v {
			v[key] = r.field(key, of)
		}
		return v
	case []any:
		for i := range v {
			v[i] = r.scrub("", v[i])
		}
		return v
	case string:
		if first, _, more := strings.Cut(v, "\n"); more && slices.Contains(errorFields, name) {
			return first + " " + Removed
		}
		return v
	}
	return v
}

func (r *Redactor) field(key string, v any) any {
	if v == nil || v == "" || v == false || v == true {
		return v
	}
	name := letters.ReplaceAllString(strings.ToLower(key), "")
	switch {
	case namesFile(name):
	case secretField.MatchString(name):
		r.learnFrom(v)
		return Removed
	case slices.Contains(guests, name):
		if pairs, ok := v.(map[string]any); ok {
			r.learnPairs(pairs)
		}
		return Removed
	}
	return r.scrub(key, v)
}

// learnFrom learns the strings of a secret field. Short strings may be ordinary words.
func (r *Redactor) learnFrom(v any) {
	switch v := v.(type) {
	case string:
		if len(v) >= 8 {
			r.Learn(v)
		}
	case []any:
		for _, e := range v {
			r.learnFrom(e)
		}
	case map[string]any:
		for _, e := range v {
			r.learnFrom(e)
		}
	}
}

// learnPairs learns the values of an environment with secret names.
func (r *Redactor) learnPairs(pairs map[string]any) {
	for name, v := range pairs {
		if SecretName(name) {
			r.learnFrom(v)
		}
	}
}

// SecretName reports whether a variable's name is one of a secret, such as FORKD_TOKEN.
func SecretName(name string) bool {
	name = letters.ReplaceAllString(strings.ToLower(name), "")
	return !namesFile(name) &&
		(secretField.MatchString(name) || strings.HasSuffix(name, "key") || strings.HasSuffix(name, "pass"))
}
