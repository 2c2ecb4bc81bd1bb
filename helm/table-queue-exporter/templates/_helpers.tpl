{{- define "tqe.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Short enough that a StatefulSet's pods and their labels are too. */}}
{{- define "tqe.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tqe.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tqe.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end }}

{{/* Of every object but the pods' selectors. */}}
{{- define "tqe.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "tqe.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tqe.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "tqe.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "tqe.image" -}}
{{- $image := .Values.image.repository }}
{{- with .Values.image.registry }}{{ $image = printf "%s/%s" . $image }}{{ end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $image .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $image (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* A pod's number tells its shard, and its volume keeps its counters: both need a StatefulSet. */}}
{{- define "tqe.stateful" -}}
{{- if or .Values.state.persistence.enabled (gt (int .Values.shards) 1) }}true{{ end }}
{{- end }}

{{- define "tqe.pods" -}}
{{- mul (int .Values.shards) (int .Values.replicaCount) }}
{{- end }}

{{/* Whether a file of configuration is read; without it one database is searched for queues. */}}
{{- define "tqe.configured" -}}
{{- if or .Values.config .Values.existingConfigMap }}true{{ end }}
{{- end }}

{{- define "tqe.configMapName" -}}
{{- default (include "tqe.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- define "tqe.configKey" -}}
{{- if .Values.existingConfigMap }}{{ .Values.existingConfigMapKey }}{{ else }}config.yaml{{ end }}
{{- end }}

{{- define "tqe.databaseSecret" -}}
{{- default (printf "%s-database" (include "tqe.fullname" .)) .Values.database.existingSecret }}
{{- end }}

{{- define "tqe.scheme" -}}
{{- if .Values.webConfig.tls }}https{{ else }}http{{ end }}
{{- end }}

{{/* The configuration with the files of the Secrets put into it. */}}
{{- define "tqe.config" -}}
{{- $config := deepCopy .Values.config }}
{{- range $name, $secret := .Values.databaseSecrets }}
{{- $database := get $config.databases $name | default dict }}
{{- $directory := printf "/etc/table-queue-exporter/databases/%s" $name }}
{{- with $secret.passwordKey }}
{{- $_ := set $database "password_file" (printf "%s/%s" $directory .) }}
{{- end }}
{{- with $secret.dsnKey }}
{{- $_ := set $database "dsn_file" (printf "%s/%s" $directory .) }}
{{- end }}
{{- $_ := set $config.databases $name $database }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "tqe.validate" -}}
{{- if and .Values.config .Values.existingConfigMap }}
{{- fail "give either config or existingConfigMap, not both" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "enable either serviceMonitor or podMonitor: with both each pod is scraped twice, and every queue is there twice" }}
{{- end }}
{{- with .Values.webConfig }}
{{- if and (or .tls .clientCertificates .basicAuth.existingSecret) (not .existingSecret) }}
{{- fail "webConfig.tls, clientCertificates and basicAuth tell what is in the file of webConfig.existingSecret: name it" }}
{{- end }}
{{- end }}
{{- if and (gt (int .Values.shards) 1) (not (include "tqe.configured" .)) }}
{{- fail "shards split the databases of config or existingConfigMap: name them there" }}
{{- end }}
{{- if .Values.config }}
{{- if not .Values.config.databases }}
{{- fail "config.databases must name at least one database" }}
{{- end }}
{{- range $name, $database := .Values.config.databases }}
{{- $database = $database | default dict }}
{{- if hasKey $database "password" }}
{{- fail (printf "config.databases.%s.password would be for all to read in a ConfigMap: put it into a Secret and name that in databaseSecrets.%s" $name $name) }}
{{- end }}
{{- $dsn := $database.dsn | default "" | toString }}
{{- if or (regexMatch "^[a-z]+://[^/@]*:[^@]*@" $dsn) (regexMatch "(^|[\\s?&])password\\s*=" $dsn) }}
{{- fail (printf "config.databases.%s.dsn holds a password, which would be for all to read in a ConfigMap: put it into a Secret and name that in databaseSecrets.%s" $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $secret := .Values.databaseSecrets }}
{{- if not (or $secret.passwordKey $secret.dsnKey) }}
{{- fail (printf "databaseSecrets.%s needs passwordKey or dsnKey" $name) }}
{{- end }}
{{- if and $.Values.config (not (hasKey $.Values.config.databases $name)) }}
{{- fail (printf "databaseSecrets.%s names no database of config.databases: %s" $name (keys $.Values.config.databases | sortAlpha | join ", ")) }}
{{- end }}
{{- if not (include "tqe.configured" $) }}
{{- fail "databaseSecrets belong to config or existingConfigMap; without them use database.existingSecret" }}
{{- end }}
{{- end }}
{{- end }}
