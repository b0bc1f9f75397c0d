package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"text/template"
	"text/template/parse"
)

// tablePrefix begins the text of a template with aligned columns and a header.
const tablePrefix = "table "

// Template is the value of --format. It prints results with a template of package text/template,
// over the JSON form of the result. A list's template is executed for each element.
type Template struct {
	text   string
	table  bool
	parsed *template.Template // nil without --format
	headed bool               // the header of a table of single lines is printed
}

// TemplateError is a mistake in a template.
type TemplateError struct {
	// Err describes the mistake.
	Err error
}

func (e TemplateError) Error() string { return "--format: " + e.Err.Error() }
func (e TemplateError) Unwrap() error { return e.Err }

// functions are the functions of templates, in addition to those of text/template.
func functions() template.FuncMap {
	return template.FuncMap{"json": jsonText, "join": joinList, "upper": upperText, "lower": lowerText}
}

// Given reports whether there is a template.
func (t *Template) Given() bool { return t.parsed != nil }

// Set parses a template.
func (t *Template) Set(text string) error {
	rest, table := strings.CutPrefix(text, tablePrefix)
	p, err := template.New("").Funcs(functions()).Option("missingkey=zero").Parse(rest)
	if err != nil {
		return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "template: "), ":"))
	}
	if p.Tree == nil || len(p.Root.Nodes) == 0 {
		return errors.New("the template is empty")
	}
	unescape(p.Root)
	t.text, t.table, t.parsed = text, table, p
	return nil
}

func (t *Template) String() string { return t.text }

// Type names the kind of flag.
func (t *Template) Type() string { return "template" }

// unescape replaces \t and \n in the text of a template. A shell passes them on as they are.
func unescape(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			n.Text = []byte(strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(string(n.Text)))
		case *parse.IfNode:
			unescape(n.List)
			unescape(n.ElseList)
		case *parse.RangeNode:
			unescape(n.List)
			unescape(n.ElseList)
		case *parse.WithNode:
			unescape(n.List)
			unescape(n.ElseList)
		}
	}
}

// print writes a value with the template.
func (t *Template) print(p *Printer, v any) error {
	of := shapeOf(v)
	if err := check(t.parsed.Root, scope{root: of.element(), dot: of.element()}); err != nil {
		return TemplateError{err}
	}
	raw, err := decoded(v)
	if err != nil {
		return err
	}
	list, isList := raw.([]any)
	if !isList && of.element() == of {
		list = []any{raw}
	}
	var out bytes.Buffer
	if t.table && !p.Quiet && !t.headed {
		out.WriteString(t.header() + "\n")
	}
	for _, element := range list {
		if err := t.parsed.Execute(&out, of.element().fill(element)); err != nil {
			return TemplateError{executed(err)}
		}
		out.WriteString("\n")
	}
	text := CleanLines(out.String()) // a guest may choose parts of it
	if !t.table {
		_, err = p.Out.Write([]byte(text))
		return err
	}
	w := tabwriter.NewWriter(p.Out, 0, 8, gap, ' ', 0)
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return w.Flush()
}

// executed shortens an error of text/template.
func executed(err error) error {
	var failed template.ExecError
	if !errors.As(err, &failed) {
		return err
	}
	text := failed.Err.Error()
	if _, after, ok := strings.Cut(text, `executing "" at `); ok {
		text = after
	}
	return errors.New(text)
}

// header names the columns of a table by the last field of each.
func (t *Template) header() string {
	columns := []string{""}
	for _, n := range t.parsed.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			columns = append(columns, make([]string, bytes.Count(n.Text, []byte("\t")))...)
		case *parse.ActionNode:
			if at := &columns[len(columns)-1]; *at == "" {
				*at = strings.ToUpper(strings.ReplaceAll(lastField(n.Pipe), "_", " "))
			}
		}
	}
	return strings.Join(columns, "\t")
}

func lastField(p *parse.PipeNode) (name string) {
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			switch arg := arg.(type) {
			case *parse.FieldNode:
				name = arg.Ident[len(arg.Ident)-1]
			case *parse.PipeNode:
				name = lastField(arg)
			}
		}
	}
	return name
}

// jsonText returns a value in the form of --json, in one line.
func jsonText(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(given(v)); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// joinList joins the elements of a list.
func joinList(list any, separator string) (string, error) {
	var parts []string
	switch list := list.(type) {
	case []any:
		for _, v := range list {
			parts = append(parts, fmt.Sprint(v))
		}
	case absent, nil:
	default:
		return "", fmt.Errorf("join %v: want a list", list)
	}
	return strings.Join(parts, separator), nil
}

func upperText(v any) string { return strings.ToUpper(fmt.Sprint(v)) }
func lowerText(v any) string { return strings.ToLower(fmt.Sprint(v)) }
