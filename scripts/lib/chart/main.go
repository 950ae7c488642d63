// Renders a Helm chart where there is no helm: with the template engine and the functions that helm has, of what
// corq's chart uses. Prints the documents of all templates in the order of their names.
//
//	chart CHART RELEASE NAMESPACE [VALUES.yaml]
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func read(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	fail(err)
	values := map[string]interface{}{}
	fail(yaml.Unmarshal(text, &values))
	return values
}

// Objects are merged, all else is replaced.
func merge(into, from map[string]interface{}) {
	for key, value := range from {
		inner, isMap := value.(map[string]interface{})
		old, wasMap := into[key].(map[string]interface{})
		if isMap && wasMap {
			merge(old, inner)
		} else {
			into[key] = value
		}
	}
}

func toYaml(value interface{}) (string, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

func main() {
	if len(os.Args) < 4 {
		fail(fmt.Errorf("chart CHART RELEASE NAMESPACE [VALUES.yaml]"))
	}
	chart := os.Args[1]
	values := read(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[4:] {
		merge(values, read(path))
	}
	about := read(filepath.Join(chart, "Chart.yaml"))
	context := map[string]interface{}{
		"Values":  values,
		"Release": map[string]interface{}{"Name": os.Args[2], "Namespace": os.Args[3], "Service": "Helm"},
		"Chart":   map[string]interface{}{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
	}

	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = toYaml
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	all.Funcs(functions)
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	fail(err)
	sort.Strings(files)
	var documents []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		fail(err)
		name := filepath.Base(path)
		_, err = all.New(name).Parse(string(text))
		fail(err)
		// Notes are rendered, too, but are no document.
		if !strings.HasPrefix(name, "_") {
			documents = append(documents, name)
		}
	}
	for _, name := range documents {
		var out bytes.Buffer
		fail(all.ExecuteTemplate(&out, name, context))
		text := strings.TrimSpace(out.String())
		if name != "NOTES.txt" && text != "" {
			fmt.Printf("---\n# Source: %s/templates/%s\n%s\n", about["name"], name, text)
		}
	}
}
