{{/* One endpoint of a ServiceMonitor or PodMonitor; they say it alike. */}}
{{- define "tqe.endpoint" -}}
{{- $web := .root.Values.webConfig }}
port: http
path: /metrics
scheme: {{ include "tqe.scheme" .root }}
{{- with .monitor.interval }}
interval: {{ . }}
{{- end }}
{{- with .monitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .monitor.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $web.basicAuth }}
{{- if .existingSecret }}
basicAuth:
  username:
    name: {{ .existingSecret }}
    key: {{ .usernameKey }}
  password:
    name: {{ .existingSecret }}
    key: {{ .passwordKey }}
{{- end }}
{{- end }}
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_name]
    targetLabel: instance
  {{- with .monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tqe.monitorMetadata" -}}
name: {{ include "tqe.fullname" .root }}
namespace: {{ default .root.Release.Namespace .monitor.namespace }}
labels:
  {{- include "tqe.labels" .root | nindent 2 }}
  {{- with .monitor.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "tqe.monitorSelection" -}}
namespaceSelector:
  matchNames: [{{ .Release.Namespace }}]
selector:
  matchLabels:
    {{- include "tqe.selectorLabels" . | nindent 4 }}
{{- end }}
