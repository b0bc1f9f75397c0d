package netpolicy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// maxFile is the largest policy file, in bytes.
const maxFile = 1 << 20

// fileSpec is a policy file. It has the same keys as Spec.
type fileSpec struct {
	Default    text         `yaml:"default"`
	Allow      []text       `yaml:"allow"`
	Deny       []text       `yaml:"deny"`
	HTTPSPorts []uint16     `yaml:"https_ports"`
	Headers    []fileHeader `yaml:"headers"`
	Sign       []fileSign   `yaml:"sign"`
	Proxy      *fileProxy   `yaml:"proxy"`
	Limits     fileLimits   `yaml:"limits"`
}

type fileHeader struct {
	Host    text              `yaml:"host"`
	Headers map[string]string `yaml:"headers"`
	Secrets map[string]string `yaml:"secrets"`
}

type fileSign struct {
	Host    text         `yaml:"host"`
	Region  text         `yaml:"region"`
	Secrets SignSecrets  `yaml:"secrets"`
	Buckets []fileBucket `yaml:"buckets"`
}

type fileBucket struct {
	Name     text `yaml:"name"`
	Prefix   text `yaml:"prefix"`
	ReadOnly bool `yaml:"read_only"`
}

type fileProxy struct {
	URL    text `yaml:"url"`
	User   text `yaml:"user"`
	Secret text `yaml:"secret"`
	Names  bool `yaml:"names"`
}

type fileLimits struct {
	Flows          int   `yaml:"flows"`
	FlowsPerSecond int   `yaml:"flows_per_second"`
	DNSPerSecond   int   `yaml:"dns_per_second"`
	BytesPerSecond int64 `yaml:"bytes_per_second"`
}

// text is a string with its line, for errors.
type text struct {
	value string
	line  int
}

// UnmarshalYAML accepts a scalar and keeps its spelling: 1.0 is not 1.
func (t *text) UnmarshalYAML(node ast.Node) error {
	tok := node.GetToken()
	if tok == nil || tok.Position == nil {
		return errors.New("want a plain text")
	}
	switch n := node.(type) {
	case *ast.StringNode:
		t.value = n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		t.value = tok.Value
	default:
		return &yaml.SyntaxError{Message: "want a plain text; " + quoteHint, Token: tok}
	}
	t.value, t.line = strings.TrimSpace(t.value), tok.Position.Line
	return nil
}

const quoteHint = `rules that begin with * or [ are written in quotes, such as "*.example.com"`

// FileError is a mistake in a policy file.
type FileError struct {
	File string // name of the file, as the caller gave it
	Line int    // 0 if the mistake has no line
	Msg  string // the mistake, without file and line
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Msg
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
}

// ParseFile reads a policy file in YAML and checks all of it. Unknown keys are errors. name is used
// in errors. The error is one or several joined *FileError.
func ParseFile(name string, content []byte) (Spec, error) {
	if len(content) > maxFile {
		return Spec{}, &FileError{name, 0, fmt.Sprintf("larger than %d KiB", maxFile>>10)}
	}
	var f fileSpec
	if line, err := decodeFile(content, &f); err != nil {
		return Spec{}, &FileError{name, line, err.Error()}
	}
	if err := f.checkLines(name); err != nil {
		return Spec{}, err
	}
	spec := f.spec()
	if _, err := Compile(spec); err != nil {
		return Spec{}, &FileError{name, 0, err.Error()}
	}
	return spec, nil
}

// decodeFile returns the line of its error, if there is one.
func decodeFile(content []byte, f *fileSpec) (line int, err error) {
	defer func() { // the library is not written for hostile text
		if p := recover(); p != nil {
			line, err = 0, fmt.Errorf("not valid YAML (%v)", p)
		}
	}()
	if strings.TrimSpace(string(content)) == "" {
		return 0, errors.New("is empty; the least policy is default: deny")
	}
	if line := tooDeep(string(content)); line > 0 {
		return line, errors.New("is nested too deep for a policy")
	}
	err = yaml.UnmarshalWithOptions(content, f, yaml.Strict())
	if err == nil {
		return 0, nil
	}
	var y yaml.Error
	if !errors.As(err, &y) {
		return 0, err
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return line, errors.New(explain(err, y.GetMessage(), lineOf(content, line)))
}

// maxDepth limits the open brackets, or the dashes of a line. The library's time grows with their
// square: 80 KiB of them take seconds.
const maxDepth = 32

// tooDeep returns the line at which a file exceeds maxDepth, or 0. It ignores quoting: quoted text
// in a policy closes all its brackets.
func tooDeep(content string) int {
	open, n := 0, 0
	for line := range strings.Lines(content) {
		n++
		for _, c := range line {
			switch c {
			case '[', '{':
				open++
			case ']', '}':
				open = max(0, open-1)
			}
			if open > maxDepth {
				return n
			}
		}
		if strings.Count(line, "- ") > maxDepth || strings.Count(line, "? ") > maxDepth {
			return n
		}
	}
	return 0
}

// explain adds the correct form to a message.
func explain(err error, msg, line string) string {
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		return strings.Replace(msg, "unknown field", "unknown key", 1) +
			"; the keys are default, allow, deny, https_ports, headers, sign, proxy and limits"
	}
	item := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "-"))
	if !strings.Contains(msg, quoteHint) && (strings.HasPrefix(item, "*") || strings.HasPrefix(item, "[")) {
		return msg + "; " + quoteHint
	}
	return msg
}

func lineOf(content []byte, n int) string {
	lines := strings.Split(string(content), "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// checkLines finds the mistakes that have a line.
func (f *fileSpec) checkLines(name string) error {
	var errs []error
	if _, err := Default(f.Default.value).isPublic(); err != nil {
		errs = append(errs, &FileError{name, f.Default.line, err.Error()})
	}
	for _, list := range []struct {
		key   string
		rules []text
	}{{"allow", f.Allow}, {"deny", f.Deny}} {
		for _, t := range list.rules {
			if _, err := ParseRule(t.value); err != nil {
				errs = append(errs, &FileError{name, t.line, list.key + ": " + err.Error()})
			}
		}
	}
	return errors.Join(errs...)
}

func (f *fileSpec) spec() Spec {
	s := Spec{Default: Deny, Allow: values(f.Allow), Deny: values(f.Deny), HTTPSPorts: f.HTTPSPorts}
	s.Limits = Limits(f.Limits)
	if public, _ := Default(f.Default.value).isPublic(); public {
		s.Default = Public
	}
	for _, h := range f.Headers {
		s.Headers = append(s.Headers, HeaderRule{Host: h.Host.value, Headers: h.Headers, Secrets: h.Secrets})
	}
	for _, r := range f.Sign {
		s.Sign = append(s.Sign, r.rule())
	}
	if p := f.Proxy; p != nil {
		s.Proxy = &ProxyRule{URL: p.URL.value, User: p.User.value, Secret: p.Secret.value, Names: p.Names}
	}
	return s
}

func (f fileSign) rule() SignRule {
	r := SignRule{Host: f.Host.value, Region: f.Region.value, Secrets: f.Secrets}
	for _, b := range f.Buckets {
		r.Buckets = append(r.Buckets, BucketRule{Name: b.Name.value, Prefix: b.Prefix.value, ReadOnly: b.ReadOnly})
	}
	return r
}

func values(list []text) []string {
	var all []string
	for _, t := range list {
		all = append(all, t.value)
	}
	return all
}
