{{- define "corq.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "corq.selector" -}}
app.kubernetes.io/name: corq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "corq.labels" -}}
{{ include "corq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* The secret with the tokens; nothing if there are none. */ -}}
{{- define "corq.secret" -}}
{{- if .Values.auth.existingSecret }}{{ .Values.auth.existingSecret }}{{ else if .Values.auth.tokens }}{{ include "corq.name" . }}-tokens{{ end }}
{{- end }}
