{{/* How a probe asks. A kubelet knows no password: then a program in the container asks. */}}
{{- define "tqe.probe" -}}
{{- $web := .root.Values.webConfig }}
{{- if $web.clientCertificates }}
tcpSocket:
  port: http
{{- else if $web.basicAuth.existingSecret }}
exec:
  command: {{ include "tqe.probeCommand" (dict "root" .root "url" (printf "%s://127.0.0.1:%d%s" (include "tqe.scheme" .root) (int .root.Values.containerPort) .path)) | nindent 4 }}
{{- else }}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "tqe.scheme" .root | upper }}
{{- end }}
{{- end }}

{{- define "tqe.probeCommand" -}}
{{- $web := .root.Values.webConfig }}
- python3
- -m
- table_queue_exporter.probe
- --url={{ .url }}
{{- with .expect }}
- --expect={{ . }}
{{- end }}
{{- if $web.basicAuth.existingSecret }}
- --user-file=/etc/table-queue-exporter/login/{{ $web.basicAuth.usernameKey }}
- --password-file=/etc/table-queue-exporter/login/{{ $web.basicAuth.passwordKey }}
{{- end }}
{{- if $web.tls }}
- --tls-skip-verify
{{- end }}
{{- end }}

{{- define "tqe.args" -}}
- serve
{{- if include "tqe.configured" . }}
- --config.file=/etc/table-queue-exporter/config/{{ include "tqe.configKey" . }}
{{- if eq .Values.configReload "live" }}
- --config.auto-reload
{{- end }}
{{- else }}
- --database.dsn-file=/etc/table-queue-exporter/database/{{ .Values.database.dsnKey }}
{{- end }}
- --state.dir=/var/lib/table-queue-exporter
- --web.listen-address=:{{ .Values.containerPort }}
{{- if .Values.webConfig.existingSecret }}
- --web.config.file=/etc/table-queue-exporter/web/{{ .Values.webConfig.key }}
{{- end }}
{{- if gt (int .Values.shards) 1 }}
- --shard=$(POD_NAME)/{{ .Values.shards }}
{{- end }}
- --log.level={{ .Values.log.level }}
- --log.format={{ .Values.log.format }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tqe.volumeMounts" -}}
- name: state
  mountPath: /var/lib/table-queue-exporter
{{- if include "tqe.configured" . }}
- name: config
  mountPath: /etc/table-queue-exporter/config
  readOnly: true
{{- else }}
- name: database
  mountPath: /etc/table-queue-exporter/database
  readOnly: true
{{- end }}
{{- range $name, $_ := .Values.databaseSecrets }}
- name: database-{{ $name | sha256sum | trunc 12 }}
  mountPath: /etc/table-queue-exporter/databases/{{ $name }}
  readOnly: true
{{- end }}
{{- if .Values.webConfig.existingSecret }}
- name: web
  mountPath: /etc/table-queue-exporter/web
  readOnly: true
{{- end }}
{{- if .Values.webConfig.basicAuth.existingSecret }}
- name: login
  mountPath: /etc/table-queue-exporter/login
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Secrets are whole directories: a single mounted file would never change. */}}
{{- define "tqe.volumes" -}}
{{- if include "tqe.configured" . }}
- name: config
  configMap:
    name: {{ include "tqe.configMapName" . }}
{{- else }}
- name: database
  secret:
    secretName: {{ include "tqe.databaseSecret" . }}
    defaultMode: 0440
{{- end }}
{{- range $name, $secret := .Values.databaseSecrets }}
- name: database-{{ $name | sha256sum | trunc 12 }}
  secret:
    secretName: {{ $secret.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- with .Values.webConfig.existingSecret }}
- name: web
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.webConfig.basicAuth.existingSecret }}
- name: login
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if not .Values.state.persistence.enabled }}
- name: state
  emptyDir:
    sizeLimit: {{ .Values.state.persistence.size }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tqe.affinity" -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- if and .Values.antiAffinity (not $affinity.podAntiAffinity) (gt (int (include "tqe.pods" .)) 1) }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "tqe.selectorLabels" . | fromYaml)) }}
{{- if eq .Values.antiAffinity "hard" }}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) }}
{{- else }}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term))) }}
{{- end }}
{{- end }}
{{- with $affinity }}{{ toYaml . }}{{ end }}
{{- end }}

{{- define "tqe.podTemplate" -}}
metadata:
  labels:
    {{- include "tqe.selectorLabels" . | nindent 4 }}
    {{- with merge (dict) .Values.podLabels .Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $annotations := deepCopy .Values.podAnnotations }}
  {{- if and .Values.config (eq .Values.configReload "restart") }}
  {{- $_ := set $annotations "checksum/config" (include "tqe.config" . | sha256sum) }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "tqe.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  containers:
    - name: exporter
      image: {{ include "tqe.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "tqe.args" . | nindent 8 }}
      env:
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: {{ .Values.containerPort }}
          protocol: TCP
      startupProbe:
        {{- include "tqe.probe" (dict "root" . "path" "/-/healthy") | trim | nindent 8 }}
        periodSeconds: {{ .Values.startupProbe.periodSeconds }}
        timeoutSeconds: {{ .Values.livenessProbe.timeoutSeconds }}
        failureThreshold: {{ .Values.startupProbe.failureThreshold }}
      livenessProbe:
        {{- include "tqe.probe" (dict "root" . "path" "/-/healthy") | trim | nindent 8 }}
        periodSeconds: {{ .Values.livenessProbe.periodSeconds }}
        timeoutSeconds: {{ .Values.livenessProbe.timeoutSeconds }}
        failureThreshold: {{ .Values.livenessProbe.failureThreshold }}
      readinessProbe:
        {{- include "tqe.probe" (dict "root" . "path" "/-/ready") | trim | nindent 8 }}
        periodSeconds: {{ .Values.readinessProbe.periodSeconds }}
        timeoutSeconds: {{ .Values.readinessProbe.timeoutSeconds }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "tqe.volumeMounts" . | trim | nindent 8 }}
  volumes:
    {{- include "tqe.volumes" . | trim | nindent 4 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "tqe.affinity" . }}
  affinity:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $constraint := deepCopy . }}
    {{- if not $constraint.labelSelector }}
    {{- $_ := set $constraint "labelSelector" (dict "matchLabels" (include "tqe.selectorLabels" $ | fromYaml)) }}
    {{- end }}
    - {{ toYaml $constraint | nindent 6 | trim }}
    {{- end }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
