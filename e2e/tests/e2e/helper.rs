//! Small workloads for tests of the bench itself.

use anyhow::Result;
use e2e::plain::images;

/// The newest Valkey image, which also has a shell and a few tools.
pub fn image() -> Result<String> {
    Ok(images()?.pop().map(|image| image.to_string()).unwrap_or_default())
}

/// A `StatefulSet` of one pod that runs a shell script on a node, with a volume of its own at `/data`.
pub fn keeper(name: &str, node: Option<&str>, script: &str) -> Result<String> {
    let image = image()?;
    let selector = node.map_or_else(|| "{}".into(), |node| format!("{{kubernetes.io/hostname: {node}}}"));
    let script = serde_json::to_string(script)?;
    Ok(format!(
        r"
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}}}
spec:
  serviceName: {name}
  replicas: 1
  persistentVolumeClaimRetentionPolicy: {{whenDeleted: Retain, whenScaled: Retain}}
  selector: {{matchLabels: {{app.kubernetes.io/name: {name}}}}}
  template:
    metadata: {{labels: {{app.kubernetes.io/name: {name}}}}}
    spec:
      nodeSelector: {selector}
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 20
      securityContext:
        runAsNonRoot: true
        runAsUser: 999
        runAsGroup: 999
        fsGroup: 999
        seccompProfile: {{type: RuntimeDefault}}
      containers:
      - name: shell
        image: {image}
        imagePullPolicy: IfNotPresent
        command: [sh, -c, {script}]
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
        volumeMounts: [{{name: data, mountPath: /data}}]
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {{requests: {{storage: 1Gi}}}}
"
    ))
}
